"""Measures what failing clients do to a process, with each of our aggregators.

    python -m tff_ssl.testing.faults my_module:SPEC [--aggregators=NAME,NAME]

SPEC is a tff_ssl.ProcessSpec in my_module.py, in this folder or on PYTHONPATH,
or the name of a process of tff_ssl. Ten clients train it on tiny data; after
20 rounds, a share of them fails for 5 rounds (--list says how), and up to 5
rounds of sound clients follow. All of it takes minutes.

A row breaks a promise if

- a number of the state, of model, optimizer or aggregator, is not finite;
- clients that took part, were empty, not finite or invalid are counted wrongly;
- five rounds of sound clients after the fault, accuracy is not back: .1 below
  what it was before the fault, or below that of sound clients if that is less;
- clients that are left out (nan, overflow, nan_pixels, no_examples,
  unknown_group) cost more than .1 beside leaving them out.

With `exploding`, counts and accuracy are promised by aggregators that bear so
many clients; --list says which. What it costs otherwise is shown, and no
promise: of 400 digits, two accuracies differ by .03 by chance alone (standard
error).

Exit code: 0 if all promises are kept, 1 if one is broken, 2 if it cannot run.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tff_ssl.common import whole_files
from tff_ssl.testing import command_line, fault_rounds
from tff_ssl.testing.fault_rounds import FAULTS, MARGIN, NUM_CLIENTS
from tff_ssl.testing.tiny_problems import TinyProblem

# Of ten classes; below, there is little that could be lost.
_LEARNT = 0.3
KEPT, BROKEN, UNPROMISED, REFUSED = 'kept', 'BROKEN', 'no promise', 'refused'


def _few(bad: int, members: int) -> bool:
  # The norms follow a quantile of .8 of all clients.
  del members
  return bad < 0.2 * NUM_CLIENTS


# Whether an aggregator bears so many clients that explode, all of which may be
# in one group of so many members.
_BEARS: Mapping[str, Callable[[int, int], bool]] = {
  'mean': lambda bad, members: False,
  'clip': _few,
  'robust': _few,
  'median': lambda bad, members: 2 * bad < members,
  'trimmed_mean': lambda bad, members: bad <= members // 10,
  'compressed': _few,
  'dp': _few,
  'secure': _few,
  'secure_dp': lambda bad, members: True,
}


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of the table; of an aggregator that is refused, the only one.

  Accuracies and `recovered_after` are those of `fault_rounds.Measured`.

  Attributes:
    ended: 'kept', 'BROKEN', 'no promise' or 'refused'.
    reason: Of the last three, why; else ''.
  """

  process: str
  aggregator: str
  fault: str = ''
  share: float | None = None
  before: float | None = None
  clean: float | None = None
  left_out: float | None = None
  accuracy: float | None = None
  recovered_after: int | None = None
  ended: str = REFUSED
  reason: str = ''

  @property
  def cells(self) -> list[str]:
    """The values as text, in the order of the fields."""
    return [_text(value) for value in dataclasses.astuple(self)]


_COLUMNS = tuple(field.name for field in dataclasses.fields(Row))


def _text(value) -> str:
  if value is None:
    return ''
  return f'{value:.3f}' if isinstance(value, float) else str(value)


def measure(
  problem: TinyProblem, aggregator: str, faults: Iterable[str] = tuple(FAULTS)
) -> Iterator[Row]:
  """Yields the rows of an aggregator, each when it is measured.

  Args:
    problem: The process, whose clients train.
    aggregator: A key of `recommended.AGGREGATORS`.
    faults: Keys of `FAULTS`; those that cannot be had are passed over.
  """
  name = problem.spec.name
  try:
    bench = fault_rounds.Bench(problem, aggregator)
  except (TypeError, ValueError) as error:
    # With 'mean', nothing is asked of the builder that it could refuse.
    ended = BROKEN if aggregator == 'mean' else REFUSED
    yield Row(name, aggregator, ended=ended, reason=_in_one_line(error))
    return
  for fault in faults:
    if not fault_rounds.applies(fault, problem):
      continue
    for share in FAULTS[fault].shares:
      yield _row(bench, aggregator, fault, share)


def _row(bench, aggregator, fault, share) -> Row:
  """Measures a row; a process that stops has broken its promise."""
  row = Row(bench.problem.spec.name, aggregator, fault, share)
  try:
    measured = bench.measure(fault, share)
  except Exception as error:  # noqa: BLE001
    reason = f'stops with {type(error).__name__}: {_in_one_line(error)}'
    return dataclasses.replace(row, ended=BROKEN, reason=reason)
  ended, reason = _verdict(bench.problem, aggregator, fault, share, measured)
  return dataclasses.replace(
    row,
    before=measured.before,
    clean=measured.clean,
    left_out=measured.left_out,
    accuracy=measured.accuracy,
    recovered_after=measured.recovered_after,
    ended=ended,
    reason=reason,
  )


def _in_one_line(error: Exception) -> str:
  return ' '.join(str(error).split())


def is_borne(
  problem: TinyProblem, aggregator: str, fault: str, share: float
) -> bool:
  """Returns whether more than a finite state is promised."""
  if fault != 'exploding':
    return True
  members = NUM_CLIENTS // problem.num_groups
  return _BEARS[aggregator](round(share * NUM_CLIENTS), members)


def _verdict(problem, aggregator, fault, share, measured) -> tuple[str, str]:
  """Returns how a row ended, and why."""
  reasons = []
  if not measured.is_finite:
    reasons.append('the state is not finite')
  later = []
  if measured.miscounts:
    later.append(f'clients counted wrongly: {measured.miscounts}')
  if measured.recovered_after is None:
    later.append(f'not back after {fault_rounds.RECOVERY_ROUNDS} rounds')
  if FAULTS[fault].counted and measured.left_out - measured.accuracy > MARGIN:
    later.append('worse than leaving them out')
  if is_borne(problem, aggregator, fault, share):
    reasons += later
  elif later and not reasons:
    return UNPROMISED, '; '.join(later)
  return (BROKEN if reasons else KEPT), '; '.join(reasons)


def read(path: pathlib.Path) -> list[list[str]]:
  """Returns the cells of each row of a file that `write` has written.

  Raises:
    ValueError: If it holds something else.
  """
  if not path.exists():
    return []
  table = [*csv.reader(io.StringIO(path.read_text(encoding='utf-8')))]
  if {len(row) for row in table} != {len(_COLUMNS)} or (
    tuple(table[0]) != _COLUMNS
  ):
    raise ValueError(
      f'--output={path} holds another table, which begins with {table[:1]}: '
      'name another file.'
    )
  return table[1:]


def write(path: pathlib.Path, rows: Sequence[Row]) -> None:
  """Writes a table, as CSV or as Markdown by the ending of the path.

  In a CSV file, rows of other processes, aggregators and faults stay, but for
  what an aggregator that is refused, or is no longer, makes void.
  """
  if path.suffix == '.csv':
    cells = [row.cells for row in rows]
    # Of an aggregator that is refused, the name of the fault is empty.
    new = {(*row[:2], fault) for row in cells for fault in (row[2], '')}
    refused = {tuple(row[:2]) for row in cells if not row[2]}
    kept = [
      row
      for row in read(path)
      if tuple(row[:3]) not in new and tuple(row[:2]) not in refused
    ]
    order = [*_BEARS, '', *FAULTS]
    table = sorted(
      kept + cells, key=lambda row: (row[0], *map(order.index, row[1:3]))
    )
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator='\n').writerows([_COLUMNS, *table])
    text = buffer.getvalue()
  else:
    head = [column.replace('_', ' ') for column in _COLUMNS]
    lines = [head, ['---'] * len(head), *(row.cells for row in rows)]
    text = ''.join(f'| {" | ".join(cells)} |\n' for cells in lines)
  with whole_files.replacing(path) as file:
    file.write(text.encode())


def _describe() -> Iterator[str]:
  """Yields the lines of `--list`."""
  yield f'Faults, of {NUM_CLIENTS} clients:'
  for name, fault in FAULTS.items():
    shares = ', '.join(f'{share:.0%}' for share in fault.shares)
    yield f'  {name:14}  {shares} {fault.description}'
  yield 'Aggregators, and how many clients that explode they bear:'
  for name, bears in _BEARS.items():
    most = [
      max(bad for bad in range(NUM_CLIENTS) if not bad or bears(bad, members))
      for members in (NUM_CLIENTS, NUM_CLIENTS // 2)
    ]
    yield f'  {name:14}  {most[0]}; within groups of five {most[1]}'


def _run(problem, aggregators, faults) -> list[Row]:
  """Measures and prints rows; returns them."""
  rows, began = [], time.monotonic()
  line = '{:12}  {:14}  {:>5}  {:>6}  {:>6}  {:>8}  {:>6}  {:>5}  {}'
  print(
    line.format(
      *('aggregator', 'fault', 'share', 'before', 'sound', 'left out'),
      *('with', 'back', 'ended'),
    )
  )
  for row in itertools.chain.from_iterable(
    measure(problem, name, faults) for name in aggregators
  ):
    rows.append(row)
    share, *numbers = row.cells[3:9]
    ended = f'{row.ended}: {row.reason}' if row.reason else row.ended
    cells = (row.aggregator, row.fault, share[:-1], *numbers, ended)
    print(line.format(*cells), flush=True)
  counts = {
    ended: sum(row.ended == ended for row in rows)
    for ended in (KEPT, BROKEN, UNPROMISED, REFUSED)
  }
  print(
    f'{problem.spec.name}: '
    + ', '.join(f'{count} {ended}' for ended, count in counts.items())
    + f', in {time.monotonic() - began:.0f} s.'
  )
  before = [row.before for row in rows if row.before is not None]
  if before and min(before) < _LEARNT:
    print(
      f'Before the faults, accuracy was {min(before):.2f}: so little says '
      'nothing of whether it comes back.'
    )
  return rows


def main(argv: Sequence[str]) -> int:
  """Runs the command line `argv`, the program first; returns the exit code."""
  parser = command_line.build_parser(
    'python -m tff_ssl.testing.faults', __doc__
  )
  parser.add_argument(
    '--aggregators', metavar='NAME,NAME', help='take only these'
  )
  parser.add_argument(
    '--faults', metavar='NAME,NAME', help='measure only these'
  )
  parser.add_argument(
    '--output',
    metavar='FILE',
    type=pathlib.Path,
    help='write the table, too: .csv, where other rows stay, or .md',
  )
  values = parser.parse_args(argv[1:])
  if values.list:
    print(*_describe(), sep='\n')
    return 0
  try:
    aggregators = command_line.chosen(
      '--aggregators', values.aggregators, _BEARS
    )
    faults = command_line.chosen('--faults', values.faults, FAULTS)
    output = values.output
    if output is not None:
      _check_output(output)
    spec = command_line.find(values.process)
    if spec.needs.clients == 'none':
      raise ValueError(
        f'process={values.process!r} trains no client that could fail: name '
        'another one.'
      )
  except ValueError as error:
    parser.error(str(error))
  command_line.install_context()
  rows = _run(TinyProblem(spec), aggregators, faults)
  if output is not None:
    write(output, rows)
    print(f'{output} is written.')
  return int(any(row.ended == BROKEN for row in rows))


def _check_output(path: pathlib.Path) -> None:
  """Raises `ValueError` where a table could not be written in the end."""
  if path.suffix not in ('.csv', '.md'):
    raise ValueError(f'--output={path} must end in .csv or .md.')
  if not os.access(path.parent, os.W_OK):
    raise ValueError(
      f'--output={path}: there is no folder {path.parent} to write to: make it.'
    )
  if path.suffix == '.csv':
    read(path)


if __name__ == '__main__':
  command_line.run(main)
