"""Who has taken part in a run, how often, and in which round last.

Each checkpoint holds it, so that a resumed run knows who rests
(`--min_separation`). At its end a run writes it as a table.
"""

import io
import os
from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.artifacts import csv_text
from tff_ssl.common import whole_files
from tff_ssl.simulation.client_faults import Cohort

FILE = 'participation.npy'
# The columns of the table for each client. The last one is a round, 0 where
# there was none; the others count rounds.
_COUNTS = ('invited', 'dropped', 'stragglers', 'corrupt')
_COLUMNS = (*_COUNTS, 'last_round')


class Participation:
  """Counts the rounds that each client was invited to."""

  def __init__(self, table: np.ndarray | None = None):
    """Initializes the counts.

    Args:
      table: `int32 [K, 5]`, a row for each client; by default nobody has taken
        part.
    """
    self._table = (
      np.zeros([0, len(_COLUMNS)], np.int32) if table is None else table
    )

  @classmethod
  def unpack(cls, content: bytes | None) -> 'Participation':
    """Returns what a checkpoint says.

    Args:
      content: Of its file, from `pack`; `None` where it has none.
    """
    if content is None:
      return cls()
    return cls(np.load(io.BytesIO(content), allow_pickle=False))

  def pack(self) -> bytes:
    """Returns the content of the file beside a checkpoint's state."""
    content = io.BytesIO()
    np.save(content, self._table, allow_pickle=False)
    return content.getvalue()

  def note(self, round_number: int, cohort: Cohort) -> None:
    """Notes who was invited to a round that counts.

    Args:
      round_number: Of the round, 1 for the first.
      cohort: Its clients.
    """
    missing = max(cohort.invited, default=-1) + 1 - len(self._table)
    if missing > 0:
      self._table = np.pad(self._table, [(0, missing), (0, 0)])
    for column, name in enumerate(_COUNTS):
      self._table[getattr(cohort, name), column] += 1
    self._table[cohort.invited, -1] = round_number

  def resting(self, round_number: int, min_separation: int) -> np.ndarray:
    """Returns the clients that cannot take part in a round.

    Args:
      round_number: Of the round, 1 for the first.
      min_separation: The least number of rounds from one round of a client to
        its next one.
    """
    last = self._table[:, -1]
    return np.flatnonzero((last > 0) & (round_number - last < min_separation))

  def write(self, path: str | os.PathLike, names: Sequence[str]) -> None:
    """Writes the table of all clients as CSV.

    Args:
      path: The file.
      names: Of all clients, by index.
    """
    counts = np.zeros([len(names), len(_COLUMNS)], np.int32)
    counts[: len(self._table)] = self._table
    table = pd.DataFrame(counts, columns=list(_COLUMNS))
    table.insert(0, 'name', list(names))
    with whole_files.replacing(path) as file:
      file.write(csv_text.of_table(table, index_label='client').encode())
