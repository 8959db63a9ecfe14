"""A CSV with the same rows, such as one per client, for some of the rounds."""

import collections
import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from experiments.artifacts import round_table


class RowsOfRounds(round_table.RoundTable):
  """Appends the rows of a round; they are on the disk when `append` returns.

  Attributes:
    columns: Those after the round; a subclass names them.
    what: What has a row in each round, in the plural, for error messages.
  """

  columns: ClassVar[tuple[str, ...]]
  what: ClassVar[str]

  def __init__(
    self,
    path: str | os.PathLike,
    first_round: int,
    rounds: Sequence[int],
    digest: str | None = None,
  ):
    """Opens the log of a run that starts or continues with `first_round`.

    Args:
      path: The CSV file.
      first_round: Rows of this round and later ones are dropped.
      rounds: The earlier rounds whose rows the file must hold.
      digest: Of these rows, where it is known.

    Raises:
      MetricLogError: If the file cannot be written, is not such a log, lacks
        rows, or has other rows than `digest` says.
    """
    super().__init__(path, first_round)
    if self._rows and self._columns != list(self.columns):
      raise round_table.MetricLogError(
        f'{self._path} has the columns {self._columns} and not '
        f'{list(self.columns)}: move the file away.'
      )
    found = collections.Counter(int(row[0]) for row in self._rows)
    if list(found) != list(rounds) or len(set(found.values())) > 1:
      raise round_table.MetricLogError(
        f'{self._path} does not hold the rows of all {self.what} for the '
        f'rounds {list(rounds)} in which they were evaluated: restore it from '
        'a copy, or start anew in another folder.'
      )
    self._start(list(self.columns), digest)
    # The columns are fixed, so the earlier rows are not needed again.
    self._rows = []

  def append(self, round_number: int, rows: Iterable[Sequence]) -> None:
    """Appends the rows of a round: all of them, or none.

    Args:
      round_number: Number of the round.
      rows: A row for each, with the values of `columns`.

    Raises:
      MetricLogError: If they cannot be written.
    """
    cells = [
      [
        str(round_number),
        *(
          round_table.cell(name, _one_line(value))
          for name, value in zip(self.columns, row, strict=True)
        ),
      ]
      for row in rows
    ]
    try:
      self._append_lines(''.join(map(round_table.line, cells)))
    except OSError as error:
      raise self._write_error(error) from error
    self._note(cells)


class ClientLog(RowsOfRounds):
  """How good the model is for each client: clients.csv.

  The columns are the client's index in the partition (as in split.npz), its
  name, the number of its test examples, and the model's accuracy in [0, 1] and
  loss in nats on these examples.
  """

  columns = ('client', 'name', 'examples', 'accuracy', 'loss')
  what = 'clients'


class PseudoLabelLog(RowsOfRounds):
  """What pseudo-labels each class gets: pseudo_labels.csv.

  The columns are the class and its name, the number of measured examples that
  are of this class, how many of these get a pseudo-label (fractions where a
  rule weighs them), how many of those are right, and how many pseudo-labels
  name this class, rightly or not.
  """

  columns = ('class', 'name', 'examples', 'labelled', 'right', 'named')
  what = 'classes'


@contextlib.contextmanager
def opened(
  kind: type[RowsOfRounds],
  path: pathlib.Path,
  first_round: int,
  *,
  log,
  column: str,
  is_wanted: bool,
) -> Iterator[RowsOfRounds | None]:
  """Opens a log for a run that goes on with `first_round`.

  An existing file is opened even where no rows are to come: opening it drops
  those of rounds that will be repeated.

  Args:
    kind: The class of the log.
    path: The CSV file.
    first_round: Number of the first round to come.
    log: `MetricLog` of the run, open.
    column: Its column that is there in the rounds that have rows.
    is_wanted: Whether there will be rows.

  Yields:
    The log, or `None` where no rows are to come.

  Raises:
    MetricLogError: As `RowsOfRounds`.
  """
  if not is_wanted and not path.exists():
    yield None
    return
  digest = log.stored.get(path.name)
  with kind(path, first_round, log.rounds_with(column), digest) as rows:
    log.tables.append(rows)
    yield rows if is_wanted else None


def _one_line(value):
  """Escapes unprintable characters: a name may hold them, a cell may not."""
  if not isinstance(value, str):
    return value
  return ''.join(
    letter if letter.isprintable() else letter.encode('unicode_escape').decode()
    for letter in value
  )
