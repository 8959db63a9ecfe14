"""Chooses a flag's value for each row: `python -m experiments.tune --help`.

It runs each row of a table with each value, with one seed. It skips finished
runs and resumes interrupted ones. For each row it chooses the value with the
highest accuracy on the validation split; `experiments.reproduce --tuned` then
runs the rows with these values. With `--folds` there is no such split: each
value has a run for each fold of the labelled examples, which is for validation
there, and the mean counts. A row keeps its own value unless another is ahead by
more than one standard error.
"""

from __future__ import annotations

import itertools
import pathlib
import shlex
import sys
from collections.abc import Sequence

from etils import epy

from datasets.partition import label_folds
from experiments import reproduce
from experiments.artifacts import csv_files, durable_files
from experiments.config import command_line, side_commands
from experiments.config.command_line import UsageError
from experiments.tables import child_runs, cluster_runs, recipes, tuning
from tff_ssl.common.setting import Setting

# It takes a second to import, which --help does not need.
with epy.lazy_imports():
  import pandas as pd

_SEED = 0
COMMAND = side_commands.Command(
  'tune',
  'Runs each row of a table with each value of a flag, with one seed, and '
  'chooses the value with the highest accuracy on the validation split. '
  'Finished runs are skipped, interrupted ones resumed.',
  '--table=fedlabel_emnist47 --flag=learning_rate \\\n'
  '      --values=0.01,0.03,0.1',
  (
    side_commands.TABLE,
    Setting('flag', str, 'A flag of experiments.run.'),
    Setting('values', str, 'Values of the flag, such as 0.01,0.03,0.1.'),
    side_commands.ROWS,
    Setting('rounds', int, 'Rounds of each run; by default all.', at_least=1),
    Setting(
      'folds',
      int,
      'Chooses by cross-validation: each value runs so many times, each time '
      'with another part of the labelled examples for validation. It needs no '
      'label beyond those of training. A row keeps its own value, if that is '
      'among them, unless another is ahead by more than one standard error.',
      at_least=2,
      at_most=100,
    ),
    side_commands.RUNS_DIR,
    *side_commands.FOLDERS,
    *cluster_runs.SETTINGS,
  ),
  required=('table', 'flag', 'values'),
)


def plan(
  table: str,
  flag: str,
  values: Sequence[str],
  *,
  rows: tuple[str, ...] | None = None,
  rounds: int | None = None,
  folds: int | None = None,
  runs_dir: str = 'runs',
  folders: dict[str, str] | None = None,
) -> dict[tuple[str, str], tuple[child_runs.ChildRun, ...]]:
  """Returns the runs by row and value, as texts; see `reproduce.plan`.

  Each has one run, or with `folds` one for each.
  """
  changes = [{}]
  if folds is not None:
    name = label_folds.FOLD.name
    changes = [{name: label_folds.text(n, folds)} for n in range(folds)]
  known = recipes.load(table)
  for row in rows or ():
    command_line.check_name('rows', row, known)
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
      planned = [
        reproduce.plan(
          table,
          rows=(row,),
          seeds=(_SEED,),
          scale=1.0 if rounds is None else rounds / total,
          runs_dir=runs_dir,
          folders=folders,
          changed={row: {flag: value, **change}},
        )
        for change in changes
      ]
      runs[row, text] = tuple(run for ((_, run),) in planned)
  return runs


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  return COMMAND.main(argv, _run)


def _run(flags, arguments) -> int:
  del arguments  # There are none.
  output = _output(flags)
  if output.exists():
    # Its rows are kept, so it must be such a table.
    tuning.read(output, recipes.load(flags.table))
  runs = plan(
    flags.table,
    flags.flag,
    flags.values.split(','),
    rows=flags.rows and tuple(flags.rows.split(',')),
    rounds=flags.rounds,
    folds=flags.folds,
    runs_dir=flags.runs_dir,
    folders=reproduce.folders_of(flags),
  )
  own = _own(flags) if flags.folds else {}
  outcome = cluster_runs.run_all(
    reproduce.distinct(itertools.chain(*runs.values())),
    cluster=flags.cluster,
    cores=flags.cluster_cores,
  )
  table = tuning.choose(flags.flag, runs, own)
  table = tuning.add_to(output, table)
  _write(table, output, _commands(table, flags), flags.folds)
  if outcome.failed:
    print(f'error: failed: {"; ".join(outcome.failed)}.', file=sys.stderr)
  return outcome.exit_code


def _own(flags) -> dict[str, object]:
  """Returns the value of the flag that each row has by itself.

  A row that cannot run without the flag has none.
  """
  rows = flags.rows.split(',') if flags.rows else recipes.load(flags.table)
  own = {}
  for row in rows:
    try:
      ((_, run),) = reproduce.plan(
        flags.table,
        rows=(row,),
        seeds=(_SEED,),
        folders=reproduce.folders_of(flags),
      )
    except UsageError:
      continue
    own[row] = getattr(run.settings, flags.flag, None)
  return own


def _output(flags) -> pathlib.Path:
  rounds = '' if flags.rounds is None else f'_{flags.rounds}rounds'
  folds = '' if flags.folds is None else f'_{flags.folds}folds'
  stem = f'{pathlib.Path(flags.table).stem}_{flags.flag}{rounds}{folds}'
  return pathlib.Path(flags.runs_dir).expanduser() / f'{stem}.csv'


def _commands(table: pd.DataFrame, flags) -> list[str]:
  given = {'rounds': flags.rounds, 'folds': flags.folds}
  more = ''.join(f' --{k}={v}' for k, v in given.items() if v is not None)
  return [
    f'python -m experiments.tune --table={shlex.quote(flags.table)} '
    f'--flag={flags.flag} --values={shlex.quote(",".join(values))} '
    f'--rows={",".join(rows)}{more}'
    for values, rows in tuning.tried(table).items()
  ]


def _write(
  table: pd.DataFrame,
  output: pathlib.Path,
  commands: Sequence[str],
  folds: int | None,
) -> None:
  """Prints and writes the table; writes the commands below it."""
  output.parent.mkdir(parents=True, exist_ok=True)
  csv_files.write_table(table, output, index=False)
  cells = table.round(4).astype(object)
  markdown = cells.where(cells.notna(), None).to_markdown(
    index=False, missingval='', disable_numparse=True
  )
  what = 'the validation split'
  if folds is not None:
    what = f'the labels that did not train, mean of {folds} folds'
  parts = [f'Accuracy on {what}, seed {_SEED}.', markdown]
  if commands:
    parts += ['Commands:', *(f'    {line}' for line in commands)]
  text = '\n\n'.join(parts)
  durable_files.write(output.with_suffix('.md'), f'{text}\n'.encode())
  print(markdown)
  print(f'\nWritten to {output} and {output.with_suffix(".md").name}.')


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
