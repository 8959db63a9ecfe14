"""Runs the rows of a published table: `python -m experiments.reproduce --help`.

All rows, each with all its seeds; what is finished is skipped, what was cut
goes on. It ends with the published accuracies beside ours.
"""

import argparse
import pathlib
import sys

from experiments import child_runs, recipes
from experiments import settings as settings_lib
from experiments.flags import UsageError

_USAGE = 2


def plan(
  table: str,
  *,
  rows: tuple[str, ...] | None = None,
  seeds: tuple[int, ...] | None = None,
  scale: float = 1.0,
  runs_dir: str = 'runs',
  folders: dict[str, str] | None = None,
) -> list[child_runs.ChildRun]:
  """Returns the runs of a table, all rows of the first seed first.

  Args:
    table: Name of the table or path of its CSV.
    rows: Names of rows; by default all.
    seeds: Seeds; by default those of each row.
    scale: Share of the rounds, in (0, 1].
    runs_dir: Folder of the run folders.
    folders: `data_dir` and `cache_dir`, where they are given.

  Raises:
    UsageError: If any of the runs cannot be had.
  """
  known = recipes.load(table)
  for row in rows or ():
    settings_lib.check_name('rows', row, known)
  runs = []
  for recipe in (known[row] for row in rows or known):
    for place, seed in enumerate(seeds or recipe.seeds):
      given = {
        'recipe': recipe.name,
        'seed': seed,
        'run_dir': recipes.default_run_dir(recipe, scale, seed, runs_dir),
        **(folders or {}),
      }
      if scale != 1:
        given['recipe_scale'] = scale
      run = child_runs.ChildRun(
        f'{recipe.row}, seed {seed}', given, recipes.make(given)
      )
      runs.append((place, run))
  # A table with one seed in every cell comes before a first row with all seeds.
  return [run for _, run in sorted(runs, key=lambda item: item[0])]


def _list() -> None:
  for table in recipes.tables():
    print(f'{table}:')
    for recipe in recipes.load(table).values():
      published = '' if recipe.published is None else f'{recipe.published:.4f}'
      print(f'  {recipe.row:26} {published:6}  {recipe.source}'.rstrip())


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    'python -m experiments.reproduce', description=__doc__.partition('\n\n')[2]
  )
  add = parser.add_argument
  add('--list', action='store_true', help='name tables and rows, and end')
  add('--table', help='name of a table, or the path of a CSV file')
  add('--rows', help='rows, such as c10_s2,c47_s5; by default all')
  add('--seeds', help='seeds, such as 0,1,2; by default those of each row')
  add(
    '--scale',
    type=float,
    default=1.0,
    help='share of the rounds, in (0, 1]: rounds, schedule and server warm-up '
    'are shortened together (the warm-up to one round at least)',
  )
  add('--runs_dir', default='runs', help='folder of the results (runs)')
  add('--data_dir', help='as in experiments.run')
  add('--cache_dir', help='as in experiments.run')
  return parser


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  parser = _parser()
  arguments = parser.parse_args(argv[1:])
  try:
    if arguments.list:
      _list()
      return 0
    if arguments.table is None:
      parser.error('--table is missing; --list names what there is')
    runs = plan(
      arguments.table,
      rows=arguments.rows and tuple(arguments.rows.split(',')),
      seeds=arguments.seeds and recipes.parse_seeds(arguments.seeds),
      scale=arguments.scale,
      runs_dir=arguments.runs_dir,
      folders={
        name: value
        for name in ('data_dir', 'cache_dir')
        if (value := getattr(arguments, name)) is not None
      },
    )
  except UsageError as error:
    print(f'error: {error}', file=sys.stderr)
    return _USAGE
  outcome = child_runs.run_all(runs)
  _report(runs, arguments)
  if outcome.failed:
    print(f'error: failed: {"; ".join(outcome.failed)}.', file=sys.stderr)
  return outcome.exit_code


def _report(runs, arguments) -> None:
  """Prints and writes the table of what is finished."""
  # pandas and matplotlib take seconds to import.
  from experiments import report, report_table

  finished = [
    pathlib.Path(run.settings.run_dir)
    for run in runs
    if child_runs.is_finished(run.settings)
  ]
  if finished:
    scaled = '' if arguments.scale == 1 else f'_scale{arguments.scale:g}'
    stem = pathlib.Path(arguments.table).stem + scaled
    output = pathlib.Path(arguments.runs_dir).expanduser() / stem
    print(report_table.as_text(report.report(finished, output)))
    print(f'\nWritten to {output}.csv, .md and .png.')
  if len(finished) < len(runs):
    print(f'{len(runs) - len(finished)} of {len(runs)} runs are not finished.')


if __name__ == '__main__':
  sys.exit(main(sys.argv))
