"""Runs the rows of a published table: `python -m experiments.reproduce --help`.

It runs all rows, each with all its seeds. It skips finished runs and resumes
interrupted ones. At the end it prints the published figures beside ours.
"""

import dataclasses
import pathlib
import sys
import types
from collections.abc import Iterable, Mapping

from experiments.artifacts import run_folder
from experiments.config import command_line, side_commands
from experiments.config.command_line import UsageError
from experiments.tables import (
  child_runs,
  cluster_runs,
  costs,
  recipes,
  tuning,
)
from tff_ssl.common.setting import Setting

_HOURS = (
  'Hours are those of the machines that made results/, on one or two cores (a '
  'row, one\nseed). Where no row of this kind ran there, they are unknown. '
  'For this machine:\npython -m experiments.run --recipe=TABLE:ROW --dry_run'
)

COMMAND = side_commands.Command(
  'reproduce',
  'Runs the rows of a published table, each with all its seeds, and compares '
  'the results with the published figures. Finished runs are skipped, '
  'interrupted ones resumed.',
  '--table=gain_writers --seeds=0 --scale=0.1',
  (
    side_commands.TABLE,
    side_commands.ROWS,
    Setting(
      'add_rows',
      str,
      'CSV file with more rows, such as those of a process of your own, on the '
      'data of rows of the table (same_as=TABLE:ROW).',
    ),
    side_commands.like(
      'seeds', 'Seeds, such as 0,1,2; by default those of each row.'
    ),
    Setting(
      'scale',
      float,
      'Share of the rounds: rounds, pre-training, schedule and '
      'server warm-up are shortened together (pre-training and warm-up to one '
      'round at least).',
      default=1.0,
      above=0,
      at_most=1,
    ),
    Setting(
      'tuned',
      str,
      'CSV that experiments.tune wrote: each row runs with the value that was '
      'chosen for it.',
    ),
    side_commands.AGAINST,
    side_commands.RUNS_DIR,
    *side_commands.FOLDERS,
    *cluster_runs.SETTINGS,
    side_commands.like(
      'dry_run', 'Lists the runs and the rounds that they have done, and ends.'
    ),
    side_commands.like(
      'list',
      'Lists the tables, or with --table its rows, with what they take, and '
      'ends.',
    ),
    side_commands.JSON,
  ),
)


def plan(
  table: str,
  *,
  add_rows: str | None = None,
  rows: tuple[str, ...] | None = None,
  seeds: tuple[int, ...] | None = None,
  scale: float = 1.0,
  runs_dir: str = 'runs',
  folders: dict[str, str] | None = None,
  changed: Mapping[str, dict[str, object]] | None = None,
) -> list[tuple[recipes.Recipe, child_runs.ChildRun]]:
  """Returns the runs of a table with the rows that read them.

  The runs of the first seed of all rows come first. Rows that share a run have
  the same `ChildRun`. `folders` are those of `folders_of`; `changed` has flags
  by row, which replace those of its recipe. `add_rows` is the path of a file
  with more rows.
  """
  known = recipes.load_with(table, add_rows)
  for row in rows or ():
    command_line.check_name('rows', row, known)
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
        facts = [f'{name}={value}' for name, value in other.items()]
        name = ', '.join([recipe.same_as or recipe.row, *facts, f'seed {seed}'])
        made = recipes.make(given)
        runs[run_dir] = child_runs.ChildRun(name, given, made)
      readings.append((place, recipe, runs[run_dir]))
  # A table with one seed in every cell comes before a first row with all seeds.
  readings.sort(key=lambda reading: reading[0])
  return [(recipe, run) for _, recipe, run in readings]


def _list_tables() -> list[dict[str, object]]:
  """Prints the tables, and returns what `--json` prints."""
  found = []
  width = max(map(len, recipes.tables()))
  print(f'{"table":{width}}  rows  runs   hours')
  for table in recipes.tables():
    rows = recipes.load(table).values()
    runs = {recipe.run_name: recipe for recipe in rows}.values()
    number = sum(len(recipe.seeds) for recipe in runs)
    hours = _sum(costs.hours(run) for run in runs for _ in run.seeds)
    print(f'{table:{width}}  {len(rows):4}  {number:4}  {_cell(hours)}')
    found.append(
      {'table': table, 'rows': len(rows), 'runs': number, 'hours': hours}
    )
  print(f'{_HOURS}\nRows: python -m experiments.reproduce --list --table=NAME')
  return found


def _list_rows(known: Mapping[str, recipes.Recipe]) -> list[dict[str, object]]:
  """Prints the rows of a table, and returns what `--json` prints."""
  found = []
  rows = known.values()
  width = max(len(recipe.row) for recipe in rows)
  print(f'{"row":{width}}  published  seeds   hours  source')
  for recipe in rows:
    hours = costs.hours(recipe)
    digits = '.0f' if recipe.measure.counts_rounds else '.4f'
    published = (
      '' if recipe.published is None else f'{recipe.published:{digits}}'
    )
    seeds = ','.join(map(str, recipe.seeds))
    cells = f'{recipe.row:{width}}  {published:9}  {seeds:5}'
    print(f'{cells}  {_cell(hours)}  {recipe.source}'.rstrip())
    row = dataclasses.asdict(recipe)
    found.append({**row, 'measure': str(recipe.measure), 'hours': hours})
  print(_HOURS)
  return found


def _sum(hours: Iterable[float | None]) -> float | None:
  """Returns the sum of hours; `None` if one of them is not known."""
  hours = list(hours)
  return None if None in hours else sum(hours)


def _cell(hours: float | None) -> str:
  return f'{"" if hours is None else f"{hours:,.1f}":>7}'


def _list_runs(readings) -> dict[str, object]:
  """Prints how far each run is; returns what `--json` prints."""
  left, found, hours = 0, [], []
  # One row of those that read a run.
  runs = {run.settings.run_dir: (recipe, run) for recipe, run in readings}
  for recipe, run in runs.values():
    done = run_folder.rounds_done(run.settings)
    total = run.settings.total_rounds
    print(f'{run.name}: {done} of {total} rounds, {run.settings.run_dir}')
    rest = max(0, total - done)
    left += rest
    hours.append(costs.hours(recipe, rest))
    names = {'run': run.name, 'run_dir': run.settings.run_dir}
    found.append({**names, 'rounds_done': done, 'rounds': total})
  whole, words = _sum(hours), ''
  if whole:
    words = f', about {command_line.in_words(3600 * whole)}'
  print(f'{left:,} rounds are left{words}. Nothing was trained (--dry_run).')
  print(_HOURS)
  return {'runs': found, 'hours': whole}


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  return COMMAND.main(argv, _run)


def _run(values, arguments) -> int:
  del arguments  # There are none.
  if values.list and values.table is None:
    values.found['tables'] = _list_tables()
    return 0
  if values.table is None:
    raise UsageError('--table is missing; --list names what there is.')
  known = recipes.load_with(values.table, values.add_rows)
  if values.list:
    values.found['rows'] = _list_rows(known)
    return 0
  rows = values.rows and tuple(values.rows.split(','))
  if values.against is not None:
    command_line.check_name('against', values.against, rows or known)
  changed = None
  if values.tuned is not None:
    changed = tuning.read(values.tuned, known, rows or tuple(known))
  readings = plan(
    values.table,
    add_rows=values.add_rows,
    rows=rows,
    changed=changed,
    seeds=values.seeds and recipes.parse_seeds(values.seeds),
    scale=values.scale,
    runs_dir=values.runs_dir,
    folders=folders_of(values),
  )
  if values.dry_run:
    values.found.update(_list_runs(readings))
    return 0
  runs = distinct(run for _, run in readings)
  outcome = cluster_runs.run_all(
    runs, cluster=values.cluster, cores=values.cluster_cores
  )
  _report(readings, values)
  if outcome.failed:
    print(f'error: failed: {"; ".join(outcome.failed)}.', file=sys.stderr)
  return outcome.exit_code


def folders_of(values: types.SimpleNamespace) -> dict[str, str]:
  """Returns those of `data_dir` and `cache_dir` that were given."""
  return {
    setting.name: value
    for setting in side_commands.FOLDERS
    if (value := getattr(values, setting.name)) is not None
  }


def distinct(
  runs: Iterable[child_runs.ChildRun],
) -> list[child_runs.ChildRun]:
  """Returns the runs, one of those that have the same folder."""
  return list({run.settings.run_dir: run for run in runs}.values())


def _report(readings, values) -> None:
  # pandas and matplotlib take seconds to import.
  from experiments import report
  from experiments.reporting import run_groups

  runs = distinct(run for _, run in readings)
  finished = {
    run.settings.run_dir for run in runs if child_runs.is_finished(run.settings)
  }
  if finished:
    scaled = '' if values.scale == 1 else f'_scale{values.scale:g}'
    tuned = '' if values.tuned is None else '_tuned'
    paths = filter(None, (values.table, values.add_rows))
    stem = '_'.join(pathlib.Path(path).stem for path in paths) + tuned + scaled
    output = pathlib.Path(values.runs_dir).expanduser() / stem
    groups = run_groups.of_recipes(
      [
        (recipe, pathlib.Path(run.settings.run_dir))
        for recipe, run in readings
        if run.settings.run_dir in finished
      ]
    )
    against = values.against
    if against not in {None, *(group.name for group in groups)}:
      print(f'No run of {against} is finished: no differences to it yet.')
      against = None
    found = values.found if values.json else None
    report.write(groups, output, against=against, found=found)
    print(f'\nWritten to {output}.csv, .md, .png and _curves.csv.')
  if len(finished) < len(runs):
    print(f'{len(runs) - len(finished)} of {len(runs)} runs are not finished.')


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
