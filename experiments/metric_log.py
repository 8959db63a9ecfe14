"""Metrics of a run: a CSV that holds each round once, and TensorBoard."""

import asyncio
import contextlib
import csv
import io
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments import run_folder

_ROUND = 'round'
# A spreadsheet takes a cell that begins so for a formula.
_FORMULA_STARTS = ('=', '+', '-', '@')


class MetricLogError(RuntimeError):
  """Metrics cannot be written or read."""


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


def _text_cell(text: str) -> str:
  if '\n' in text or '\r' in text or '\0' in text:
    raise ValueError(
      f'The metric {text!r} holds a line break or NUL: a cell of the CSV is '
      'one line; remove it.'
    )
  return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _cell(name: str, value: Any) -> str:
  """Returns the text from which `value` is read back exactly."""
  if isinstance(value, str):
    return _text_cell(value)
  array = np.asarray(value)
  if array.shape or array.dtype.kind not in 'biufV':
    raise ValueError(
      f'The metric {name} is {type(value).__name__} of shape {array.shape}: '
      'log numbers and strings only, one metric for each element.'
    )
  if array.dtype.kind in 'biu':
    return str(array.item())
  return repr(float(array))


def _line(cells: list[str]) -> str:
  line = io.StringIO()
  csv.writer(line, lineterminator='\n').writerow(cells)
  return line.getvalue()


class MetricLog:
  """Appends to a CSV; each row is on the disk when `append` returns."""

  def __init__(self, path: str | os.PathLike, first_round: int):
    """Opens the log of a run that starts or goes on with `first_round`.

    Rows of that round and later ones, which the run will repeat, are dropped,
    and so is a last line that an interruption cut short.

    Args:
      path: The CSV file.
      first_round: Number of the first round that will be appended.

    Raises:
      MetricLogError: If the file cannot be written, is not such a log, or
        lacks rounds before `first_round`.
    """
    self._path = pathlib.Path(path)
    columns, rows = [], []
    if self._path.exists():
      columns, rows = self._read(first_round)
    self._last_round = int(rows[-1][0]) if rows else -math.inf
    if first_round > 1 and len(rows) != first_round - 1:
      raise MetricLogError(
        f'{self._path} has {len(rows)} of the {first_round - 1} rounds that '
        'were done: restore it from a copy, or start anew in another folder.'
      )
    try:
      self._rewrite(columns, rows)
    except OSError as error:
      raise self._write_error(error) from error

  def _read(self, first_round: int) -> tuple[list[str], list[list[str]]]:
    """Returns the columns after the first and the rows to keep."""
    if not self._path.is_file():
      raise MetricLogError(f'{self._path} is not a file: move it away.')
    try:
      content = self._path.read_bytes()
      text = content[: content.rfind(b'\n') + 1].decode()
      header, *rows = list(csv.reader(io.StringIO(text))) or [[_ROUND]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
      raise MetricLogError(
        f'{self._path} cannot be read ({error}): repair or remove it.'
      ) from error
    if header[:1] != [_ROUND]:
      raise MetricLogError(
        f'{self._path} is not a metric log: its first line is {header} and '
        f'does not begin with {_ROUND!r}; move the file away.'
      )
    for number, row in enumerate(rows, start=2):
      if len(row) != len(header) or not row[0].isdecimal():
        raise MetricLogError(
          f'{self._path} is damaged at line {number}: repair or remove it.'
        )
    return header[1:], [row for row in rows if int(row[0]) < first_round]

  def _rewrite(self, columns: list[str], rows: list[list[str]]) -> None:
    """Writes the whole file anew, and opens it for the rows to come."""
    lines = map(_line, [[_ROUND, *columns], *rows])
    run_folder.write_durably(self._path, ''.join(lines).encode())
    self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
    self._columns, self._rows = columns, rows

  def _write_error(self, error: OSError) -> MetricLogError:
    return MetricLogError(
      f'{self._path} cannot be written: {error.strerror}; make room or restore '
      'write access, and start again to continue.'
    )

  def append(self, round_number: int, metrics: Mapping[str, Any]) -> None:
    """Appends the row of a round.

    A metric that is new gets a column, empty in earlier rows; one that is
    missing leaves its cell empty.

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
      _text_cell(name): _cell(name, value)
      for name, value in flatten_metrics(metrics).items()
    }
    if _ROUND in cells:
      raise ValueError(f"The metric {_ROUND!r} has the first column's name.")
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
        self._append_line(_line(row).encode())
        self._rows.append(row)
    except OSError as error:
      raise self._write_error(error) from error
    self._last_round = round_number

  def _append_line(self, line: bytes) -> None:
    size = os.fstat(self._descriptor).st_size
    try:
      run_folder.write_fully(self._descriptor, line)
    except OSError:
      # Whoever catches the error and appends again must not find half a line;
      # should this fail too, the next start drops it.
      with contextlib.suppress(OSError):
        os.ftruncate(self._descriptor, size)
      raise

  def close(self) -> None:
    """Closes the file."""
    os.close(self._descriptor)

  def __enter__(self) -> 'MetricLog':
    return self

  def __exit__(self, *unused) -> None:
    self.close()


class TensorBoardLog:
  """Writes metrics as TensorBoard events."""

  def __init__(self, folder: str | os.PathLike):
    """Creates the event file.

    Args:
      folder: Folder of the event files.
    """
    # Here, so that who needs the CSV alone does not wait 10 s for the import.
    import tensorflow_federated as tff

    self._manager = tff.program.TensorBoardReleaseManager(folder)

  def write(self, round_number: int, metrics: Mapping[str, Any]) -> None:
    """Writes the numbers of a round; strings are left out.

    Not to be called from a coroutine.

    Args:
      round_number: The step.
      metrics: Scalars, possibly nested, by name.
    """
    asyncio.run(self._manager.release(flatten_metrics(metrics), round_number))
