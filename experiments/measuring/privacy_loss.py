"""The privacy that a run has spent: in metrics.csv and summary.json."""

import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.artifacts import durable_files
from experiments.measuring.evaluation import FinishedRound
from tff_ssl import privacy

_LEDGER = 'released_rounds.json'


class EpsilonReachedError(RuntimeError):
  """A further round would pass the epsilon that was asked for."""


class PrivacyLoss:
  """Counts the rounds that clients are drawn for, and what they cost.

  A round counts before it trains: one that is killed and repeated, or given up,
  counts each time.
  """

  def __init__(
    self,
    account: privacy.PrivacyAccount,
    folder: pathlib.Path,
    *,
    rounds_done: int,
    first_round: int,
    target_epsilon: float | None = None,
  ):
    """Reads what the run has spent already, from the ledger in its folder.

    A round costs what the account says; those before `first_round`, in which
    clients send nothing, are free.
    """
    self._account = account
    self._file = folder / _LEDGER
    self._first_round = first_round
    self._target_epsilon = target_epsilon
    self._ledger = privacy.ReleaseLedger.unpack(
      self._file.read_bytes() if self._file.exists() else None,
      max(0, rounds_done - first_round),
    )

  def begin(
    self, rounds_done: int, state: Any, keys: Any, attempt: int = 0
  ) -> Mapping[str, object]:
    """Counts a round that begins, unless it would pass the target."""
    del state, keys
    # Also one that nobody is drawn for: that is an outcome of the draw.
    if rounds_done >= self._first_round:
      self._ledger.begin_round(rounds_done - self._first_round, attempt)
      self._require_room(rounds_done + 1)
      durable_files.write(self._file, self._ledger.pack())
    return {}

  def _require_room(self, round_number: int) -> None:
    if self._target_epsilon is None:
      return
    epsilon = self._account.epsilon(self._ledger.releases())
    if epsilon > self._target_epsilon:
      raise EpsilonReachedError(
        f'Stopped before round {round_number}, with which epsilon would be '
        f'{epsilon:.4g}, above --target_epsilon={self._target_epsilon:g}: '
        'rounds that were repeated or given up count, too. The newest '
        'checkpoint holds the model (python -m experiments.export).'
      )

  def measure(self, finished: FinishedRound) -> Mapping[str, object]:
    """Returns epsilon where the model is evaluated."""
    if not finished.is_evaluated:
      return {}
    return {'epsilon': self._account.epsilon(self._ledger.releases())}

  def facts(self) -> dict[str, object]:
    """Returns what summary.json says of it."""
    releases = self._ledger.releases()
    return {
      'epsilon': self._account.epsilon(releases),
      'delta': self._account.delta,
      'noise_multiplier': self._account.noise_multiplier,
      'privacy': self._account.describe(releases),
    }
