"""Who takes part in a round of a run, and what goes wrong with them."""

from collections.abc import Callable, Sequence

import numpy as np

from experiments.running.participation import Participation
from tff_ssl.simulation.client_faults import ClientFaults, Cohort

_NONE = np.zeros(0, np.int32)
_NOBODY = Cohort([], _NONE, _NONE, _NONE, _NONE)


class Cohorts:
  """Draws the clients of each round, by round and attempt."""

  def __init__(
    self,
    sample_keys: Callable[..., Sequence[np.ndarray]],
    faults: ClientFaults,
    min_separation: int = 1,
  ):
    """Initializes the cohorts.

    Args:
      sample_keys: From `round_num`, `attempt` and `resting` to the keys of
        those that are invited, such as a partial `client_sampling.sample_keys`.
      faults: What goes wrong with them.
      min_separation: The least number of rounds from one round of a client to
        its next one.
    """
    self._min_separation = min_separation
    self._sample_keys = sample_keys
    self._faults = faults

  def draw(
    self,
    round_num: int,
    attempt: int = 0,
    *,
    paused: bool = False,
    participation: Participation,
  ) -> Cohort:
    """Returns the clients of a round.

    Args:
      round_num: Rounds before this one.
      attempt: How often the clients of this round have been drawn before.
      paused: Whether clients pause in this round.
      participation: Who has taken part before.
    """
    if paused:
      return _NOBODY
    keys = self._sample_keys(
      round_num=round_num,
      attempt=attempt,
      resting=participation.resting(round_num + 1, self._min_separation),
    )
    return self._faults.deal(keys, round_num=round_num, attempt=attempt)

  def counts(self, cohort: Cohort) -> dict[str, int]:
    """Returns how many clients suffer from each fault that is simulated.

    Args:
      cohort: The clients of a round.
    """
    faults = self._faults
    shares = {
      'dropped': faults.drop_out,
      'stragglers': faults.straggler,
      'corrupt': faults.corrupt_share,
    }
    return {
      f'clients_{name}': len(getattr(cohort, name))
      for name, share in shares.items()
      if share
    }
