"""What goes wrong at the clients of a simulated round, drawn by the seed.

Of the clients that are invited to a round some drop out, some are slow and some
are corrupt. Who does is a function of (seed, round, attempt), and corrupt
clients are the same ones in all rounds.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.simulation import client_sampling

_ALL_STEPS = 100


class Cohort(NamedTuple):
  """The clients of a round: keys for the process, and indices, `int32`."""

  keys: list[np.ndarray]  # Of those that report.
  invited: np.ndarray
  dropped: np.ndarray  # They send nothing.
  stragglers: np.ndarray  # They report, with a part of their steps only.
  corrupt: np.ndarray  # They report, and are corrupt.


@dataclasses.dataclass(frozen=True)
class ClientFaults:
  """How often what goes wrong.

  Attributes:
    num_clients: K, the number of clients.
    seed: The run's seed.
    drop_out: The probability that a client which was invited sends nothing.
    straggler: The probability that one gets only a part of its steps done: a
      share that is uniform in 1, 2, ..., 99 percent, rounded up to whole steps,
      as in Li et al. (arXiv 1812.06127), Section 5.2.
    corrupt_share: The share of the K clients that is corrupt, in all rounds;
      above 0, it is one client at least. What they do is a
      `tff_ssl.Corruption`.

  Raises:
    ValueError: If a probability or the share is not in [0, 1].
  """

  num_clients: int
  seed: int
  drop_out: float = 0.0
  straggler: float = 0.0
  corrupt_share: float = 0.0

  def __post_init__(self):
    for name in ('drop_out', 'straggler', 'corrupt_share'):
      value = getattr(self, name)
      if not 0 <= value <= 1:
        raise ValueError(f'{name} must be between 0 and 1, but is {value!r}.')

  @property
  def in_keys(self) -> bool:
    """Whether keys say what goes wrong, with `FAULT_FIELDS` at their end."""
    return self.straggler > 0 or self.corrupt_share > 0

  @functools.cached_property
  def corrupt_clients(self) -> np.ndarray:
    """The indices of the corrupt clients, sorted."""
    if not self.corrupt_share:
      return np.zeros(0, np.int32)
    count = max(1, round(self.corrupt_share * self.num_clients))
    order = generator(Purpose.CORRUPT, self.seed)
    return np.sort(order.permutation(self.num_clients)[:count]).astype(np.int32)

  def deal(
    self,
    keys: Sequence[np.ndarray],
    *,
    round_num: int,
    attempt: int = 0,
  ) -> Cohort:
    """Decides what goes wrong in a round.

    Args:
      keys: Of the clients that are invited (`client_sampling.sample_keys`).
      round_num: Rounds before this one.
      attempt: How often the participants of this round have been drawn before.

    Returns:
      The `Cohort`. Its keys are `int32 [6]` if `in_keys`, else `int32 [4]`.
    """
    invited = np.array([key[0] for key in keys], np.int32)

    # Of all clients, so that it depends on nobody else who takes part.
    def chance(purpose):
      rng = generator(purpose, self.seed, round_num, attempt)
      return rng.random(self.num_clients)[invited], rng

    drops = chance(Purpose.DROP_OUT)[0] < self.drop_out
    slow, rng = chance(Purpose.STRAGGLER)
    shares = rng.integers(1, _ALL_STEPS, self.num_clients)[invited]
    work = np.where(slow < self.straggler, shares, _ALL_STEPS)
    corrupt = np.isin(invited, self.corrupt_clients)
    if self.in_keys:
      keys = [
        append(key, *facts)
        for key, *facts in zip(keys, corrupt, work, strict=True)
      ]
    return Cohort(
      [key for key, is_gone in zip(keys, drops, strict=True) if not is_gone],
      invited,
      dropped=invited[drops],
      stragglers=invited[~drops & (work < _ALL_STEPS)],
      corrupt=invited[~drops & corrupt],
    )


def append(
  key: np.ndarray, corrupt: int = 0, work: int = _ALL_STEPS
) -> np.ndarray:
  """Returns a key with `FAULT_FIELDS` at its end.

  `corrupt` is 1 of a corrupt client, or the number of what goes wrong there;
  `work` is in percent.
  """
  length = len(client_sampling.KEY_FIELDS)
  return np.concatenate([key[:length], [corrupt, work]]).astype(np.int32)
