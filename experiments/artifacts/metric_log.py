"""The metrics of a run: a CSV with one row per round, and TensorBoard."""

import asyncio
import math
import os
from collections.abc import Mapping
from concurrent import futures
from typing import Any

from experiments.artifacts import round_table
from experiments.artifacts.round_table import ROUND, MetricLogError


def flatten_metrics(metrics: Mapping[str, Any], prefix: str = '') -> dict:
  """Returns nested metrics as one level, named like `client_work/train/loss`.

  Args:
    metrics: Mappings of names to mappings, or scalars.
    prefix: What to put before each name.

  Returns:
    Scalars by name, in the order of `metrics`.
  """
  flat = {}
  for name, value in metrics.items():
    if isinstance(value, Mapping):
      flat.update(flatten_metrics(value, f'{prefix}{name}/'))
    else:
      flat[f'{prefix}{name}'] = value
  return flat


class MetricLog(round_table.RoundTable):
  """Appends to a CSV; each row is on the disk when `append` returns."""

  def __init__(
    self,
    path: str | os.PathLike,
    first_round: int,
    stored: Mapping[str, str] | None = None,
  ):
    """Opens the log of a run that starts or continues with `first_round`.

    The run will repeat that round and later ones, so their rows are dropped. An
    incomplete last line is dropped as well.

    Args:
      path: The CSV file.
      first_round: Number of the first round that will be appended.
      stored: What `digests` returned for the round before, from a checkpoint.

    Raises:
      MetricLogError: If the file cannot be written, is not such a log, lacks
        rounds before `first_round`, or has other rows than `stored` says.

    Attributes:
      stored: As the argument.
      tables: The open tables of the run: this one, and others that join it.
    """
    super().__init__(path, first_round)
    self._last_round = int(self._rows[-1][0]) if self._rows else -math.inf
    if first_round > 1 and len(self._rows) != first_round - 1:
      raise MetricLogError(
        f'{self._path} has {len(self._rows)} of the {first_round - 1} rounds '
        'that were done: restore it from a copy, or start anew in another '
        'folder.'
      )
    self.stored = stored or {}
    self.tables: list[round_table.RoundTable] = [self]
    self._start(self._columns, self.stored.get(self.name))

  def digests(self, round_number: int) -> dict[str, str]:
    """Returns the digest of each table's rows up to a round, by file name.

    Args:
      round_number: The round.
    """
    return {table.name: table.digest(round_number) for table in self.tables}

  def rounds_with(self, name: str) -> list[int]:
    """Returns the rounds in the log that have a metric, in order.

    Args:
      name: Name of the metric.
    """
    if name not in self._columns:
      return []
    place = 1 + self._columns.index(name)
    return [int(row[0]) for row in self._rows if row[place]]

  def append(self, round_number: int, metrics: Mapping[str, Any]) -> None:
    """Appends the row of a round.

    A new metric gets a new column, which is empty in earlier rows. A missing
    metric leaves its cell empty.

    Args:
      round_number: Number of the round, greater than that of the last row.
      metrics: Scalars or strings, possibly nested, by name.

    Raises:
      ValueError: If the round is not later or a value is no scalar.
      MetricLogError: If the row cannot be written.
    """
    if round_number <= self._last_round:
      raise ValueError(
        f'round={round_number} is not after round {self._last_round}, the last '
        f'of {self._path}: each round has one row.'
      )
    cells = {
      round_table.text_cell(name): round_table.cell(name, value)
      for name, value in flatten_metrics(metrics).items()
    }
    if ROUND in cells:
      raise ValueError(f"The metric {ROUND!r} has the first column's name.")
    new = [name for name in cells if name not in self._columns]
    columns = self._columns + new
    row = [str(round_number), *(cells.get(name, '') for name in columns)]
    try:
      if new:
        padded = [[*earlier, *[''] * len(new)] for earlier in self._rows]
        replaced = self._descriptor
        self._rewrite(columns, [*padded, row])
        os.close(replaced)
      else:
        self._append_lines(round_table.line(row))
        self._rows.append(row)
    except OSError as error:
      raise self._write_error(error) from error
    self._note([row])
    self._last_round = round_number


class TensorBoardLog:
  """Writes metrics as TensorBoard events."""

  def __init__(self, folder: str | os.PathLike):
    """Creates the event file.

    Args:
      folder: Folder of the event files.
    """
    # Imported here: it takes 10 s, and users of the CSV do not need it.
    import tensorflow_federated as tff

    self._manager = tff.program.TensorBoardReleaseManager(folder)

  def write(self, round_number: int, metrics: Mapping[str, Any]) -> None:
    """Writes the numbers of a round, and leaves out strings.

    Args:
      round_number: The step.
      metrics: Scalars, possibly nested, by name.
    """
    release = self._manager.release(flatten_metrics(metrics), round_number)
    # In a thread of its own, for that of a notebook has a loop that runs.
    with futures.ThreadPoolExecutor(max_workers=1) as thread:
      thread.submit(asyncio.run, release).result()
