"""Chooses a flag's value for each row: `python -m experiments.tune --help`.

Each row of a table runs with each value, at one seed; what is finished is
skipped, what was cut goes on. The accuracy on the validation split chooses, and
`experiments.reproduce --tuned` takes what was chosen.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import pandas as pd

from datasets.files import whole_files
from experiments import reproduce
from experiments.config import command_line, usage
from experiments.config.usage import UsageError
from experiments.tables import child_runs, recipes, tuning

_USAGE = 2
_SEED = 0


def plan(
  table: str,
  flag: str,
  values: Sequence[str],
  *,
  rows: tuple[str, ...] | None = None,
  rounds: int | None = None,
  runs_dir: str = 'runs',
  folders: dict[str, str] | None = None,
) -> dict[tuple[str, str], child_runs.ChildRun]:
  """Returns the runs by row and value.

  Args:
    table: Name of the table or path of its CSV.
    flag: Name of the flag.
    values: Its values, as texts.
    rows: Names of rows; by default all.
    rounds: Rounds of each run, no more than the recipe's; everything that
      belongs to a shortened run is shortened alike. By default all.
    runs_dir: As in `reproduce.plan`.
    folders: Likewise.

  Raises:
    UsageError: If any of the runs cannot be had.
  """
  known = recipes.load(table)
  for row in rows or ():
    usage.check_name('rows', row, known)
  runs = {}
  for row in dict.fromkeys(rows or known):
    total = known[row].flags()['total_rounds']
    if rounds is not None and not 1 <= rounds <= total:
      raise UsageError(
        f'--rounds={rounds} must be at least 1 and at most the {total} of '
        f'{known[row].name}.'
      )
    parsed = tuning.parse_values(flag, values, known[row])
    for text, value in parsed.items():
      ((_, run),) = reproduce.plan(
        table,
        rows=(row,),
        seeds=(_SEED,),
        scale=1.0 if rounds is None else rounds / total,
        runs_dir=runs_dir,
        folders=folders,
        changed={row: {flag: value}},
      )
      runs[row, text] = run
  return runs


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    'python -m experiments.tune', description=__doc__.partition('\n\n')[2]
  )
  add = parser.add_argument
  add(
    '--table', required=True, help='name of a table, or the path of a CSV file'
  )
  add('--flag', required=True, help='a flag of experiments.run')
  add('--values', required=True, help='its values, such as 0.01,0.03,0.1')
  add('--rows', help='rows, such as fedavg,fedlabel; by default all')
  add('--rounds', type=int, help='rounds of each run; by default all')
  add('--runs_dir', default='runs', help='folder of the results (runs)')
  add('--data_dir', help='as in experiments.run')
  add('--cache_dir', help='as in experiments.run')
  return parser


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  arguments = _parser().parse_args(argv[1:])
  output = _output(arguments)
  try:
    if output.exists():
      # Whose rows are kept, so that it must be such a table.
      tuning.read(output, recipes.load(arguments.table))
    runs = plan(
      arguments.table,
      arguments.flag,
      arguments.values.split(','),
      rows=arguments.rows and tuple(arguments.rows.split(',')),
      rounds=arguments.rounds,
      runs_dir=arguments.runs_dir,
      folders=reproduce.folders_of(arguments),
    )
    outcome = child_runs.run_all(reproduce.distinct(runs.values()))
    table = tuning.choose(arguments.flag, runs)
  except UsageError as error:
    print(f'error: {error}', file=sys.stderr)
    return _USAGE
  _write(tuning.add_to(output, table), output)
  if outcome.failed:
    print(f'error: failed: {"; ".join(outcome.failed)}.', file=sys.stderr)
  return outcome.exit_code


def _output(arguments) -> pathlib.Path:
  """Returns the file of what is chosen."""
  rounds = '' if arguments.rounds is None else f'_{arguments.rounds}rounds'
  stem = f'{pathlib.Path(arguments.table).stem}_{arguments.flag}{rounds}'
  return pathlib.Path(arguments.runs_dir).expanduser() / f'{stem}.csv'


def _write(table: pd.DataFrame, output: pathlib.Path) -> None:
  """Prints and writes the table."""
  output.parent.mkdir(parents=True, exist_ok=True)
  with whole_files.replacing(output) as file:
    table.to_csv(file, index=False)
  cells = table.round(4).astype(object)
  markdown = cells.where(cells.notna(), None).to_markdown(
    index=False, missingval='', disable_numparse=True
  )
  title = f'Accuracy on the validation split, seed {_SEED}.'
  with whole_files.replacing(output.with_suffix('.md')) as file:
    file.write(f'{title}\n\n{markdown}\n'.encode())
  print(markdown)
  print(f'\nWritten to {output} and {output.with_suffix(".md").name}.')


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
