"""Which clients take part in a round, and in which group.

A client crosses into TFF as a key, `int32 [4]`, with the fields `KEY_FIELDS`:
its index in the client store; its group; its slot, which is its position among
the participants of the round; and the group whose model it starts from. The
participants of a round are a function of (seed, round, attempt). This module
works without TensorFlow.
"""

import dataclasses
import math
from collections.abc import Collection

import numpy as np

from tff_ssl import checks
from tff_ssl.common.randomness import Purpose, generator

KEY_FIELDS = ('client', 'group', 'slot', 'start_group')
# What keys have at their end where faults of clients are simulated
# (`client_faults`).
FAULT_FIELDS = ('corrupt', 'work')
KINDS = ('uniform', 'poisson', 'daytime')


@dataclasses.dataclass(frozen=True)
class Draw:
  """How the participants of a round are drawn.

  Attributes:
    kind: 'uniform': C clients, without replacement. 'poisson': each client by
      itself, with the probability C / K, so that C is a mean. 'daytime': C
      clients without replacement, with probabilities in proportion to their
      `availability`.
    num_clients: K.
    clients_per_round: C <= K.
    seed: The run's seed, for 'daytime'.
    rounds_per_day: For 'daytime'.

  Raises:
    ValueError: If the kind is unknown.
  """

  kind: str
  num_clients: int
  clients_per_round: int
  seed: int = 0
  rounds_per_day: int = 24

  def __post_init__(self):
    checks.choice(KINDS, kind=self.kind)

  def __call__(
    self, rng: np.random.Generator, round_num: int, resting: Collection[int]
  ) -> np.ndarray:
    """Returns the indices of the clients that are invited to a round.

    Those that are `resting` cannot be.
    """
    clients, size = self.num_clients, self.clients_per_round
    if self.kind == 'daytime':
      weights = self.availability(round_num)
      weights[list(resting)] = 0
      shares = weights / weights.sum()
      return rng.choice(clients, size, replace=False, p=shares)
    if self.kind == 'poisson':
      drawn, size = np.flatnonzero(rng.random(clients) < size / clients), None
    else:
      drawn = rng.permutation(clients)
    return drawn[~np.isin(drawn, list(resting))][:size]

  def availability(self, round_num: int) -> np.ndarray:
    """Returns how available each client is at the time of day of a round.

    It is (1 + cos(2 pi (t - p_k))) / 2, `float64 [K]`, with t the time of day
    and p_k the time at which client k is idle most, both as shares of a day.
    p_k is uniform. Such availability in cycles is described in Eichner et al.
    (arXiv 1904.10120).
    """
    phases = generator(Purpose.DAYTIME, self.seed).random(self.num_clients)
    time = round_num / self.rounds_per_day
    return (1 + np.cos(2 * math.pi * (time - phases))) / 2


def sample_keys(
  *,
  num_clients: int,
  clients_per_round: int,
  num_groups: int,
  seed: int,
  round_num: int,
  redeal: bool = False,
  attempt: int = 0,
  draw: Draw | None = None,
  resting: Collection[int] = (),
) -> list[np.ndarray]:
  """Samples the participants of a round and assigns them to groups.

  Sizes of groups differ by at most one.

  Args:
    num_clients: K, the number of clients.
    clients_per_round: C <= K, the number of clients to draw.
    num_groups: S <= C, the number of groups.
    seed: The run's seed.
    round_num: Rounds before this one.
    redeal: Whether slots are assigned to groups anew in each round. Then
      `start_group` is the client's group in the round before; if the client did
      not take part in that round, it is the slot's group in the round before.
      Otherwise a slot stays in its group, and clients start from the model of
      their group.
    attempt: How often the participants of this round have been drawn before.
      The `start_group` of a second draw, too, goes by the first draw of the
      round before.
    draw: How clients are drawn; by default uniformly, without replacement.
    resting: Clients that cannot take part in this round. With `redeal` there
      are none.

  Returns:
    A list of C keys, `int32 [4]`: client index in [0, K), group in [0, S), slot
    in [0, C), group of the start model in [0, S).

  Raises:
    ValueError: If clients are drawn each by itself, for several groups.
  """
  draw = draw or Draw('uniform', num_clients, clients_per_round)
  if num_groups > 1 and draw.kind == 'poisson':
    raise ValueError(
      f"num_groups={num_groups} does not fit a 'poisson' draw, in which each "
      'client takes part whoever else does: groups are parts of those who are '
      "there, so that one client would move others. Use one group or 'uniform'."
    )

  def draw_at(at_round, *attempts):
    rng = generator(Purpose.PARTICIPANTS, seed, at_round, *attempts)
    return draw(rng, at_round, resting)

  clients = draw_at(round_num, attempt) if attempt else draw_at(round_num)
  slots = np.arange(len(clients))

  def deal(at_round):
    groups = slots % num_groups
    if not redeal:
      return groups
    rng = generator(Purpose.GROUPS, seed, at_round)
    return rng.permutation(groups)

  groups = deal(round_num)
  starts = groups
  if redeal and round_num > 0:  # Before the first round all models are equal.
    before = deal(round_num - 1)
    group_of = dict(zip(draw_at(round_num - 1), before, strict=True))
    starts = [group_of.get(c, g) for c, g in zip(clients, before, strict=True)]
  columns = (clients, groups, slots, starts)
  return list(np.stack(columns, axis=1).astype(np.int32))
