"""A CSV with rows for each round that survives a crash.

An appended row is on the disk. When a resumed run opens the file, the rows of
rounds that it will repeat are dropped. The rows that stay have a digest, which
each checkpoint keeps, so that an edited row is told.
"""

import contextlib
import csv
import hashlib
import io
import os
import pathlib
import sys
from typing import Any

import numpy as np

from experiments.artifacts import csv_text, run_folder

ROUND = 'round'


class MetricLogError(RuntimeError):
  """Metrics cannot be written or read."""


def text_cell(text: str) -> str:
  """Returns `text` as a cell that a spreadsheet does not run.

  Args:
    text: One line.

  Raises:
    ValueError: If it is more than one line, or holds NUL.
  """
  if '\n' in text or '\r' in text or '\0' in text:
    raise ValueError(
      f'The metric {text!r} holds a line break or NUL: a cell of the CSV is '
      'one line; remove it.'
    )
  return csv_text.cell(text)


def cell(name: str, value: Any) -> str:
  """Returns the text from which `value` is read back exactly.

  Args:
    name: Name of the metric, for the error message.
    value: A string, or a scalar of Python or numpy.

  Raises:
    ValueError: If it is neither, or is a string of several lines.
  """
  if isinstance(value, str):
    return text_cell(value)
  array = np.asarray(value)
  if array.shape or array.dtype.kind not in 'biufV':
    raise ValueError(
      f'The metric {name} is {type(value).__name__} of shape {array.shape}: '
      'log numbers and strings only, one metric for each element.'
    )
  if array.dtype.kind in 'biu':
    return str(array.item())
  return repr(float(array))


def line(cells: list[str]) -> str:
  """Returns a line of CSV, with the line break at its end.

  Args:
    cells: The texts of the cells.
  """
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerow(cells)
  return text.getvalue()


class RoundTable:
  """A CSV whose first column is the round; subclasses append to it."""

  def __init__(self, path: str | os.PathLike, first_round: int):
    """Reads the file of a run that starts or continues with `first_round`.

    The run will repeat that round and later ones, so their rows are dropped. An
    incomplete last line is dropped as well. A subclass checks `_columns` and
    `_rows`, and opens the file with `_start`.

    Args:
      path: The CSV file.
      first_round: Number of the first round that will be appended.

    Raises:
      MetricLogError: If the file cannot be read or is not such a table.
    """
    self._path = pathlib.Path(path)
    self._columns: list[str] = []
    self._rows: list[list[str]] = []
    self._sha256 = hashlib.sha256()
    # By round, of all rows up to there.
    self._digests: dict[int, str] = {}
    if self._path.exists():
      self._columns, self._rows = self._read(first_round)
    self._note(self._rows)

  @property
  def name(self) -> str:
    """Name of the file."""
    return self._path.name

  def digest(self, round_number: int) -> str:
    """Returns the SHA-256 of what the rows up to a round say.

    Empty cells do not count: a column that a later round has added is one more
    of them in each earlier row.

    Args:
      round_number: The round.
    """
    for number, digest in reversed(self._digests.items()):
      if number <= round_number:
        return digest
    return ''

  def _note(self, rows: list[list[str]]) -> None:
    """Adds rows, whose columns are those of the file, to the digest."""
    for number, *cells in rows:
      pairs = zip(self._columns, cells, strict=True)
      told = [text for pair in pairs if pair[1] for text in pair]
      self._sha256.update(line([number, *told]).encode())
      self._digests[int(number)] = self._sha256.hexdigest()

  def _start(self, columns: list[str], digest: str | None) -> None:
    """Opens the file, with these columns after the first.

    Args:
      columns: The columns.
      digest: What `digest` has to be; `None` where that is not known.
    """
    if digest not in (None, self.digest(sys.maxsize)):
      raise MetricLogError(
        f'{self._path} does not hold what the run wrote: a row was changed. '
        'Restore the file from a copy, or start anew in another folder.'
      )
    try:
      self._rewrite(columns, self._rows)
    except OSError as error:
      raise self._write_error(error) from error

  def _read(self, first_round: int) -> tuple[list[str], list[list[str]]]:
    """Returns the columns after the first and the rows to keep."""
    if not self._path.is_file():
      raise MetricLogError(f'{self._path} is not a file: move it away.')
    try:
      content = self._path.read_bytes()
      text = content[: content.rfind(b'\n') + 1].decode()
      header, *rows = list(csv.reader(io.StringIO(text))) or [[ROUND]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
      raise MetricLogError(
        f'{self._path} cannot be read ({error}): repair or remove it.'
      ) from error
    if header[:1] != [ROUND]:
      raise MetricLogError(
        f'{self._path} is not a metric log: its first line is {header} and '
        f'does not begin with {ROUND!r}; move the file away.'
      )
    for number, row in enumerate(rows, start=2):
      if len(row) != len(header) or not row[0].isdecimal():
        raise MetricLogError(
          f'{self._path} is damaged at line {number}: repair or remove it.'
        )
    return header[1:], [row for row in rows if int(row[0]) < first_round]

  def _rewrite(self, columns: list[str], rows: list[list[str]]) -> None:
    """Writes the whole file anew, and opens it for the rows to come."""
    lines = map(line, [[ROUND, *columns], *rows])
    run_folder.write_durably(self._path, ''.join(lines).encode())
    self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
    self._columns, self._rows = columns, rows

  def _write_error(self, error: OSError) -> MetricLogError:
    """Returns the error that says what to do about `error`."""
    return MetricLogError(
      f'{self._path} cannot be written: {error.strerror}; make room or restore '
      'write access, and start again to continue.'
    )

  def _append_lines(self, lines: str) -> None:
    """Adds whole lines; after an error, the file is unchanged."""
    size = os.fstat(self._descriptor).st_size
    try:
      run_folder.write_fully(self._descriptor, lines.encode())
    except OSError:
      # A caller may catch the error and append again: no part of the lines may
      # stay. If this fails as well, the next start drops that part.
      with contextlib.suppress(OSError):
        os.ftruncate(self._descriptor, size)
      raise

  def close(self) -> None:
    """Closes the file."""
    os.close(self._descriptor)

  def __enter__(self):
    return self

  def __exit__(self, *unused) -> None:
    self.close()
