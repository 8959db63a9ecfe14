"""Finished runs side by side: `python -m experiments.report RUN_DIR... OUTPUT`.

Writes OUTPUT.csv, OUTPUT.md (the same table, with the commands that made the
runs) and OUTPUT.png (test accuracy over rounds). Every figure is read from the
runs' summary.json and metrics.csv.
"""

import json
import pathlib
import sys

import pandas as pd
from matplotlib import figure

from experiments.flags import UsageError

# Columns of the table -> key in summary.json.
_COLUMNS = {
  'process': 'process',
  'dataset': 'dataset',
  'model': 'model',
  'seed': 'seed',
  'clients': 'clients',
  'server labels': 'server_examples',
  'rounds': 'rounds',
  'accuracy': 'accuracy',
  'best accuracy': 'best_accuracy',
  's per round': 'seconds_per_round',
}

# Flags that tell where a run lay, not what it was.
_PLACES = ('run_dir', 'cache_dir', 'data_dir')


def report(run_dirs: list[pathlib.Path], output: pathlib.Path) -> pd.DataFrame:
  """Writes the report of some finished runs.

  Args:
    run_dirs: Their folders.
    output: Path of the files to write, without an ending.

  Returns:
    The table, a row per run.

  Raises:
    UsageError: If a folder holds no finished run.
  """
  summaries = [_summary(folder) for folder in run_dirs]
  table = pd.DataFrame(
    [
      {column: summary[key] for column, key in _COLUMNS.items()}
      for summary in summaries
    ]
  ).round({'accuracy': 4, 'best accuracy': 4, 's per round': 2})
  output.parent.mkdir(parents=True, exist_ok=True)
  table.to_csv(output.with_suffix('.csv'), index=False)
  output.with_suffix('.md').write_text(_markdown(table, summaries))
  _plot(run_dirs, summaries, output.with_suffix('.png'))
  return table


def _summary(folder: pathlib.Path) -> dict:
  path = folder / 'summary.json'
  if not path.is_file():
    raise UsageError(
      f'{folder} holds no finished run (no summary.json): name the --run_dir '
      'of a run that has ended.'
    )
  return json.loads(path.read_text())


def _markdown(table: pd.DataFrame, summaries: list[dict]) -> str:
  data = sorted({summary['data'] for summary in summaries})
  commands = [
    'python -m experiments.run '
    + ' '.join(
      f'--{name}={value}'
      for name, value in summary['flags'].items()
      if name not in _PLACES
    )
    for summary in summaries
  ]
  return (
    '\n\n'.join(
      [
        table.to_markdown(index=False),
        *(f'Data: {title}.' for title in data),
        *(f'    {command}' for command in commands),
      ]
    )
    + '\n'
  )


def _plot(run_dirs, summaries, path: pathlib.Path) -> None:
  picture = figure.Figure(figsize=(7, 4), layout='constrained')
  axes = picture.subplots()
  for folder, summary in zip(run_dirs, summaries, strict=True):
    curve = pd.read_csv(folder / 'metrics.csv')[['round', 'accuracy']].dropna()
    axes.plot(
      curve['round'],
      curve['accuracy'],
      label='{process}, seed {seed}'.format(**summary),
    )
  axes.set(xlabel='round', ylabel='test accuracy')
  axes.grid(alpha=0.3)
  axes.legend(loc='lower right')
  picture.savefig(path, dpi=120)


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  if len(argv) < 3 or any(argument.startswith('-') for argument in argv[1:]):
    print(__doc__, file=sys.stderr)
    return 2
  *run_dirs, output = map(pathlib.Path, argv[1:])
  try:
    print(report(run_dirs, output).to_markdown(index=False))
  except UsageError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
