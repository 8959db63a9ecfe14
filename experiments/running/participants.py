"""Who takes part in a round of a run, and who has taken part before."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from experiments.artifacts import csv_files
from tff_ssl.simulation.client_faults import ClientFaults, Cohort

# The columns of the table for each client. The last one is a round, 0 where
# there was none; the others count rounds.
_COUNTS = ('invited', 'dropped', 'stragglers', 'corrupt')
_COLUMNS = (*_COUNTS, 'last_round')
_NONE = np.zeros(0, np.int32)
_NOBODY = Cohort([], _NONE, _NONE, _NONE, _NONE)


class Participation:
  """Counts the rounds that each client was invited to.

  Attributes:
    table: `int32 [K, 5]`, a row for each client of which the last one has been
      invited. Checkpoints keep it, so that a resumed run knows who rests.
  """

  def __init__(self, table: np.ndarray = _NONE):
    self.table = table.reshape(-1, len(_COLUMNS))

  def note(self, round_number: int, cohort: Cohort) -> None:
    """Notes who was invited to a round, 1 for the first, that counts."""
    missing = max(cohort.invited, default=-1) + 1 - len(self.table)
    if missing > 0:
      self.table = np.pad(self.table, [(0, missing), (0, 0)])
    for column, name in enumerate(_COUNTS):
      self.table[getattr(cohort, name), column] += 1
    self.table[cohort.invited, -1] = round_number

  def resting(self, round_number: int, min_separation: int) -> np.ndarray:
    """Returns the clients whose last round is too near to one, 1 the first."""
    last = self.table[:, -1]
    return np.flatnonzero((last > 0) & (round_number - last < min_separation))

  def write(self, path: pathlib.Path, names: Sequence[str]) -> None:
    """Writes the table of all clients, whose names these are, as CSV."""
    counts = np.zeros([len(names), len(_COLUMNS)], np.int32)
    counts[: len(self.table)] = self.table
    table = pd.DataFrame(counts, columns=list(_COLUMNS))
    table.insert(0, 'name', list(names))
    csv_files.write_table(table, path, index_label='client')


@dataclasses.dataclass(frozen=True)
class Cohorts:
  """Draws the clients of each round, by round and attempt.

  Attributes:
    sample_keys: From `round_num`, `attempt` and `resting` to the keys of those
      that are invited, such as a partial `client_sampling.sample_keys`.
    min_separation: The least number of rounds from one round of a client to its
      next one.
  """

  sample_keys: Callable[..., Sequence[np.ndarray]]
  faults: ClientFaults
  min_separation: int = 1

  def draw(
    self,
    round_num: int,
    attempt: int = 0,
    *,
    paused: bool = False,
    participation: Participation,
  ) -> Cohort:
    """Returns the clients of a round; nobody where clients pause.

    `round_num` rounds are before it, and its clients have been drawn `attempt`
    times before.
    """
    if paused:
      return _NOBODY
    keys = self.sample_keys(
      round_num=round_num,
      attempt=attempt,
      resting=participation.resting(round_num + 1, self.min_separation),
    )
    return self.faults.deal(keys, round_num=round_num, attempt=attempt)

  def counts(self, cohort: Cohort) -> dict[str, int]:
    """Returns how many clients suffer from each fault that is simulated."""
    shares = {
      'dropped': self.faults.drop_out,
      'stragglers': self.faults.straggler,
      'corrupt': self.faults.corrupt_share,
    }
    return {
      f'clients_{name}': len(getattr(cohort, name))
      for name, share in shares.items()
      if share
    }
