"""Which clients take part in a round, and in which group.

A client crosses into TFF as a key, `int32 [4]`, with the fields `KEY_FIELDS`:
its index in the client store; its group; its slot, which is its position among
the participants of the round; and the group whose model it starts from. The
participants of a round are a function of (seed, round, attempt). This module
works without TensorFlow.
"""

import dataclasses
from collections.abc import Collection

import numpy as np

from tff_ssl import checks
from tff_ssl.common.randomness import Purpose, generator

KEY_FIELDS = ('client', 'group', 'slot', 'start_group')
# What keys have at their end where faults of clients are simulated
# (`client_faults`).
FAULT_FIELDS = ('corrupt', 'work')
KINDS = ('uniform', 'poisson')


@dataclasses.dataclass(frozen=True)
class Draw:
  """How the participants of a round are drawn.

  Attributes:
    kind: 'uniform': C clients, without replacement. 'poisson': each client by
      itself, with the probability C / K, so that C is a mean.
    num_clients: K.
    clients_per_round: C <= K.

  Raises:
    ValueError: If the kind is unknown.
  """

  kind: str
  num_clients: int
  clients_per_round: int

  def __post_init__(self):
    checks.choice(KINDS, kind=self.kind)

  def __call__(
    self, rng: np.random.Generator, resting: Collection[int]
  ) -> np.ndarray:
    """Returns the indices of the clients that are invited to a round.

    Those that are `resting` cannot be.
    """
    clients, size = self.num_clients, self.clients_per_round
    if self.kind == 'poisson':
      drawn, size = np.flatnonzero(rng.random(clients) < size / clients), None
    else:
      drawn = rng.permutation(clients)
    return drawn[~np.isin(drawn, list(resting))][:size]


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
    return draw(rng, resting)

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
