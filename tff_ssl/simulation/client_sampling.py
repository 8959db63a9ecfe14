"""Which clients take part in a round, and in which group.

A client crosses into TFF as a key, `int32 [4]`, with the fields `KEY_FIELDS`:
its index in the client store; its group; its slot, which is its position among
the participants of the round; and the group whose model it starts from. The
participants of a round are a function of (seed, round, attempt), so the
iterator's whole state is the round: it makes one attempt.
"""

import struct
from collections.abc import Collection

import numpy as np

from tff_ssl import compat
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.simulation import client_draws

KEY_FIELDS = ('client', 'group', 'slot', 'start_group')
KEY_TYPE = compat.TensorType(np.int32, [len(KEY_FIELDS)])
# What keys have at their end where faults of clients are simulated
# (`client_faults`).
FAULT_FIELDS = ('corrupt', 'work')


def sample_keys(
  *,
  num_clients: int,
  clients_per_round: int,
  num_groups: int,
  seed: int,
  round_num: int,
  redeal: bool = False,
  attempt: int = 0,
  draw: client_draws.Draw | None = None,
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
  draw = draw or client_draws.build(
    'uniform', num_clients=num_clients, clients_per_round=clients_per_round
  )
  if num_groups > 1 and client_draws.draws_each_by_itself(draw):
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


class ClientKeySource(compat.FederatedDataSource):
  """A data source of client keys for TFF programs (`train_model`)."""

  def __init__(
    self,
    *,
    num_clients: int,
    num_groups: int = 1,
    seed: int = 0,
    redeal: bool = False,
  ):
    """Initializes the source.

    Args:
      num_clients: K >= 1, the number of clients.
      num_groups: S >= 1, the number of groups of a round's participants.
      seed: The seed of the sampling, >= 0.
      redeal: See `sample_keys`; processes with `start_model='slot'` need it.

    Raises:
      ValueError: If an argument is out of range.
    """
    for name, value, least in (
      ('num_clients', num_clients, 1),
      ('num_groups', num_groups, 1),
      ('seed', seed, 0),
    ):
      if value < least:
        raise ValueError(f'{name} must be at least {least}, but is {value}.')
    self._fields = (num_clients, num_groups, seed, int(redeal))

  @property
  def federated_type(self) -> compat.FederatedType:
    return compat.FederatedType(KEY_TYPE, compat.CLIENTS)

  def iterator(self) -> 'ClientKeyIterator':
    return ClientKeyIterator(*self._fields, round_num=0)


class ClientKeyIterator(compat.FederatedDataSourceIterator):
  """Selects the participants of one round after the other."""

  _FORMAT = '<5q'

  def __init__(
    self,
    num_clients: int,
    num_groups: int,
    seed: int,
    redeal: int,
    round_num: int,
  ):
    self._num_clients = num_clients
    self._num_groups = num_groups
    self._seed = seed
    self._redeal = redeal
    self._round = round_num

  @classmethod
  def from_bytes(cls, buffer: bytes) -> 'ClientKeyIterator':
    return cls(*struct.unpack(cls._FORMAT, buffer))

  def to_bytes(self) -> bytes:
    return struct.pack(
      self._FORMAT,
      self._num_clients,
      self._num_groups,
      self._seed,
      self._redeal,
      self._round,
    )

  @property
  def federated_type(self) -> compat.FederatedType:
    return compat.FederatedType(KEY_TYPE, compat.CLIENTS)

  def select(self, k: int | None = None) -> list[np.ndarray]:
    """Returns the keys of the next round's `k` participants.

    Args:
      k: C, with `num_groups <= k <= num_clients`.

    Raises:
      ValueError: If `k` is out of range.
    """
    if k is None or not self._num_groups <= k <= self._num_clients:
      raise ValueError(
        f'The clients per round must be between num_groups={self._num_groups} '
        f'and num_clients={self._num_clients}, but are {k}.'
      )
    keys = sample_keys(
      num_clients=self._num_clients,
      clients_per_round=k,
      num_groups=self._num_groups,
      seed=self._seed,
      round_num=self._round,
      redeal=bool(self._redeal),
    )
    self._round += 1
    return keys

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, ClientKeyIterator):
      return NotImplemented
    return self.to_bytes() == other.to_bytes()
