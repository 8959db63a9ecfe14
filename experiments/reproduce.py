"""Runs the rows of a published table: `python -m experiments.reproduce --help`.

All rows, each with all its seeds; what is finished is skipped, what was cut
goes on. It ends with the published figures beside ours.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterable, Mapping

from experiments.config import command_line, usage
from experiments.config.usage import UsageError
from experiments.tables import child_runs, recipes, tuning

_USAGE = 2


def plan(
  table: str,
  *,
  rows: tuple[str, ...] | None = None,
  seeds: tuple[int, ...] | None = None,
  scale: float = 1.0,
  runs_dir: str = 'runs',
  folders: dict[str, str] | None = None,
  changed: Mapping[str, dict[str, object]] | None = None,
) -> list[tuple[recipes.Recipe, child_runs.ChildRun]]:
  """Returns what a table reads of which run, all rows of the first seed first.

  Rows that share a run have the same object.

  Args:
    table: Name of the table or path of its CSV.
    rows: Names of rows; by default all.
    seeds: Seeds; by default those of each row.
    scale: Share of the rounds, in (0, 1].
    runs_dir: Folder of the run folders.
    folders: `data_dir` and `cache_dir`, where they are given.
    changed: By row, flags that take the place of its recipe's.

  Raises:
    UsageError: If any of the runs cannot be had.
  """
  known = recipes.load(table)
  for row in rows or ():
    usage.check_name('rows', row, known)
  changed = changed or {}
  runs, readings = {}, []
  for recipe in (known[row] for row in dict.fromkeys(rows or known)):
    for place, seed in enumerate(seeds or recipe.seeds):
      other = changed.get(recipe.row, {})
      run_dir = recipes.default_run_dir(recipe, scale, seed, runs_dir, other)
      if run_dir not in runs:
        given = {
          'recipe': recipe.run_name,
          'seed': seed,
          'run_dir': run_dir,
          **(folders or {}),
          **other,
        }
        if scale != 1:
          given['recipe_scale'] = scale
        runs[run_dir] = child_runs.ChildRun(
          ', '.join(
            [
              recipe.same_as or recipe.row,
              *(f'{name}={value}' for name, value in other.items()),
              f'seed {seed}',
            ]
          ),
          given,
          recipes.make(given),
        )
      readings.append((place, recipe, runs[run_dir]))
  # A table with one seed in every cell comes before a first row with all seeds.
  readings.sort(key=lambda reading: reading[0])
  return [(recipe, run) for _, recipe, run in readings]


def _list() -> None:
  for table in recipes.tables():
    print(f'{table}:')
    for recipe in recipes.load(table).values():
      digits = '.0f' if recipe.measure.counts_rounds else '.4f'
      published = (
        '' if recipe.published is None else f'{recipe.published:{digits}}'
      )
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
    help='share of the rounds, in (0, 1]: rounds, pre-training, schedule and '
    'server warm-up are shortened together (pre-training and warm-up to one '
    'round at least)',
  )
  add(
    '--tuned',
    help='CSV that experiments.tune wrote: each row runs with the value that '
    'was chosen for it',
  )
  add(
    '--against',
    help='name of a row: the report gives the differences of the others to it, '
    'paired by seed',
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
    rows = arguments.rows and tuple(arguments.rows.split(','))
    if arguments.against is not None:
      usage.check_name(
        'against', arguments.against, rows or recipes.load(arguments.table)
      )
    changed = None
    if arguments.tuned is not None:
      known = recipes.load(arguments.table)
      changed = tuning.of_rows(arguments.tuned, rows or tuple(known), known)
    readings = plan(
      arguments.table,
      rows=rows,
      changed=changed,
      seeds=arguments.seeds and recipes.parse_seeds(arguments.seeds),
      scale=arguments.scale,
      runs_dir=arguments.runs_dir,
      folders=folders_of(arguments),
    )
  except UsageError as error:
    print(f'error: {error}', file=sys.stderr)
    return _USAGE
  outcome = child_runs.run_all(distinct(run for _, run in readings))
  _report(readings, arguments)
  if outcome.failed:
    print(f'error: failed: {"; ".join(outcome.failed)}.', file=sys.stderr)
  return outcome.exit_code


def folders_of(arguments: argparse.Namespace) -> dict[str, str]:
  """Returns those of `data_dir` and `cache_dir` that were given."""
  return {
    name: value
    for name in ('data_dir', 'cache_dir')
    if (value := getattr(arguments, name)) is not None
  }


def distinct(
  runs: Iterable[child_runs.ChildRun],
) -> list[child_runs.ChildRun]:
  """Returns the runs, one of those that have the same folder."""
  return list({run.settings.run_dir: run for run in runs}.values())


def _report(readings, arguments) -> None:
  """Prints and writes the table of what is finished."""
  # pandas and matplotlib take seconds to import.
  from experiments import report
  from experiments.reporting import run_groups

  runs = distinct(run for _, run in readings)
  finished = {
    run.settings.run_dir for run in runs if child_runs.is_finished(run.settings)
  }
  if finished:
    scaled = '' if arguments.scale == 1 else f'_scale{arguments.scale:g}'
    tuned = '' if arguments.tuned is None else '_tuned'
    stem = pathlib.Path(arguments.table).stem + tuned + scaled
    output = pathlib.Path(arguments.runs_dir).expanduser() / stem
    groups = run_groups.of_recipes(
      [
        (recipe, pathlib.Path(run.settings.run_dir))
        for recipe, run in readings
        if run.settings.run_dir in finished
      ]
    )
    against = arguments.against
    if against not in {None, *(group.name for group in groups)}:
      print(f'No run of {against} is finished: no differences to it yet.')
      against = None
    report.write(groups, output, against=against)
    print(
      f'\nWritten to {output}.csv, .md, .png, _curves.csv and, where figures '
      'are published, _published.png.'
    )
  if len(finished) < len(runs):
    print(f'{len(runs) - len(finished)} of {len(runs)} runs are not finished.')


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
