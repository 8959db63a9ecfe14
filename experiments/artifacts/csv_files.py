"""CSV files: inert cells, and tables that grow with the rounds of a run.

Rows of a round are on the disk when they are appended. When a resumed run opens
the file, the rows of rounds that it will repeat are dropped. Those that stay
have a digest, which each checkpoint keeps, so that an edited or missing row is
told.
"""

import contextlib
import csv
import hashlib
import io
import math
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.artifacts import durable_files, run_folder

_ROUND = 'round'
# A spreadsheet reads a cell with such a first character as a formula, which may
# send data elsewhere. Names of classes and clients come from users' files.
_FORMULA_STARTS = ('=', '+', '-', '@', '\t', '\r')
# The tables beside metrics.csv: their columns after the round.
_COLUMNS = {
  # A row for each client that has test examples: its index in the partition (as
  # in split.npz), the number of these examples, and the model's accuracy in
  # [0, 1] and loss in nats on them.
  run_folder.CLIENTS: ('client', 'name', 'examples', 'accuracy', 'loss'),
  # A row for each class: the number of measured examples that are of it, how
  # many of these get a pseudo-label (fractions where a rule weighs them), how
  # many of those are right, and how many pseudo-labels name the class, rightly
  # or not.
  run_folder.PSEUDO_LABELS: (
    *('class', 'name', 'examples', 'labelled', 'right', 'named'),
  ),
}


class MetricLogError(RuntimeError):
  """Metrics cannot be written or read."""


def write_table(table, path: pathlib.Path, **how) -> None:
  """Writes a data frame as CSV; see `text_of_table`."""
  durable_files.write(path, text_of_table(table, **how).encode())


def text_of_table(table, **how) -> str:
  """Returns a data frame as CSV; `how` goes to its `to_csv`."""
  safe = table.copy()
  for column, dtype in enumerate(table.dtypes):
    if dtype.kind == 'O':
      safe.isetitem(column, table.iloc[:, column].map(inert))
  safe.columns = [inert(name) for name in table.columns]
  safe.index = table.index.map(inert)
  return safe.to_csv(**how)


def inert(value: Any) -> Any:
  """Returns a value, such as a name, as a cell that a spreadsheet won't run."""
  if (
    not isinstance(value, str)
    or not value.startswith(_FORMULA_STARTS)
    or _is_number(value)  # -1 stays as it is.
  ):
    return value
  return f"'{value}"


def _is_number(text: str) -> bool:
  try:
    return math.isfinite(float(text))
  except ValueError:
    return False


def _cell(value: Any) -> str:
  """Returns a value as one line, from which a number is read back exactly."""
  if isinstance(value, str):
    # A name of the user's may hold what is not printable, a cell may not.
    return inert(
      ''.join(
        c if c.isprintable() else c.encode('unicode_escape').decode()
        for c in value
      )
    )
  if isinstance(value, (int, np.integer, np.bool_)):
    return str(value)
  return repr(float(value))


def _line(cells: Sequence[str]) -> str:
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerow(cells)
  return text.getvalue()


class RoundTable:
  """A CSV whose first column is the round; a round may have many rows."""

  def __init__(
    self,
    path: str | os.PathLike,
    first_round: int,
    stored: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
  ):
    """Opens the file of a run that starts or continues with `first_round`.

    The run will repeat that round and later ones, so their rows are dropped,
    and so is an incomplete last line. `stored` is what `MetricLog.digests`
    returned for the last round before, if that is known; `columns` are those
    after the round, by default the ones that the file has.
    """
    self._path = pathlib.Path(path)
    self.name = self._path.name
    self._columns: list[str] = []
    self._rows: list[list[str]] = []
    self._sha256 = hashlib.sha256()
    # By round, of all rows up to there.
    self._digests: dict[int, str] = {}
    if self._path.exists():
      self._columns, self._rows = self._read(first_round)
    self._note(self._rows)
    found = self.digest(sys.maxsize)
    if stored is not None and found != stored.get(self.name, ''):
      raise MetricLogError(
        f'{self._path} does not hold what the run wrote: a row was changed or '
        'is missing. Restore the file from a copy, or start anew in another '
        'folder.'
      )
    with self._told():
      self._rewrite(list(columns or self._columns), self._rows)
    if columns:  # No further one will come, for which rows are written anew.
      self._rows = []

  def digest(self, round_number: int) -> str:
    """Returns the SHA-256 of what the rows up to a round say.

    Empty cells do not count: a column that a later round has added is one more
    of them in each earlier row.
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
      self._sha256.update(_line([number, *told]).encode())
      self._digests[int(number)] = self._sha256.hexdigest()

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
    durable_files.write(self._path, ''.join(lines).encode())
    self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
    self._columns, self._rows = columns, rows

  def _append(self, rows: Iterable[Sequence[str]]) -> None:
    durable_files.append(self._descriptor, ''.join(map(_line, rows)).encode())

  def append(self, round_number: int, rows: Iterable[Sequence]) -> None:
    """Appends the rows of a round, with the values of the columns, or none."""
    cells = [[str(round_number), *map(_cell, row)] for row in rows]
    with self._told():
      self._append(cells)
    self._note(cells)

  @contextlib.contextmanager
  def _told(self) -> Iterator[None]:
    """Says what to do where the file cannot be written."""
    try:
      yield
    except OSError as error:
      raise MetricLogError(
        f'{self._path} cannot be written: {error.strerror}; make room or '
        'restore write access, and start again to continue.'
      ) from error

  def __enter__(self):
    return self

  def __exit__(self, *unused) -> None:
    os.close(self._descriptor)


class MetricLog(RoundTable):
  """A row of metrics for each round, metrics.csv, and the tables beside it."""

  def __init__(
    self,
    path: str | os.PathLike,
    first_round: int,
    stored: Mapping[str, str] | None = None,
  ):
    """Opens the log of a run that starts or continues with `first_round`."""
    super().__init__(path, first_round, stored)
    self._first_round = first_round
    self._stored = stored
    self._tables: list[RoundTable] = [self]

  @contextlib.contextmanager
  def beside(self, name: str, is_wanted: bool) -> Iterator[RoundTable | None]:
    """Opens `run_folder.CLIENTS` or `PSEUDO_LABELS` in the same folder.

    Without rows to come it is `None`. An existing file is opened even then:
    that drops the rows of rounds that will be repeated.
    """
    path = self._path.with_name(name)
    if not is_wanted and not path.exists():
      yield None
      return
    with RoundTable(
      path, self._first_round, self._stored, _COLUMNS[name]
    ) as table:
      self._tables.append(table)
      yield table if is_wanted else None

  def digests(self, round_number: int) -> dict[str, str]:
    """Returns the digest of each table's rows up to a round, by file name."""
    return {table.name: table.digest(round_number) for table in self._tables}

  def append(self, round_number: int, metrics: Mapping[str, Any]) -> None:
    """Appends the row of a round: numbers and strings by name.

    A new metric gets a new column, which is empty in earlier rows. A missing
    metric leaves its cell empty.
    """
    cells = {_cell(name): _cell(value) for name, value in metrics.items()}
    if _ROUND in cells:
      raise ValueError(f"The metric {_ROUND!r} has the first column's name.")
    new = [name for name in cells if name not in self._columns]
    columns = self._columns + new
    row = [str(round_number), *(cells.get(name, '') for name in columns)]
    with self._told():
      if new:
        padded = [[*earlier, *[''] * len(new)] for earlier in self._rows]
        replaced = self._descriptor
        self._rewrite(columns, [*padded, row])
        os.close(replaced)
      else:
        self._append([row])
        self._rows.append(row)
    self._note([row])
