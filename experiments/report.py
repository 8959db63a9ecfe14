"""Finished runs side by side: `python -m experiments.report --help`.

Runs that differ by seed only are one row: the published figure, ours with its
spread, and the difference.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

import pandas as pd

from datasets.files import whole_files
from experiments.config import command_line
from experiments.config.usage import UsageError
from experiments.reporting import (
  mean_curves,
  paired_differences,
  published_figures,
  run_groups,
  summary_tables,
)


def report(
  run_dirs: Sequence[pathlib.Path],
  output: pathlib.Path | None = None,
  curves: Sequence[str] | None = None,
  against: str | None = None,
) -> pd.DataFrame:
  """Compares finished runs, with what was published for the recipes they name.

  Args:
    run_dirs: Their folders.
    output: As in `write`.
    curves: As in `write`.
    against: As in `write`.

  Returns:
    The table, a row per group of seeds (`summary_tables.of_groups`).

  Raises:
    UsageError: If a folder holds no finished run, a curve is in none or no
      group has the name `against`.
  """
  return write(run_groups.read_groups(run_dirs), output, curves, against)


def write(
  groups: Sequence[run_groups.Group],
  output: pathlib.Path | None = None,
  curves: Sequence[str] | None = None,
  against: str | None = None,
) -> pd.DataFrame:
  """Compares groups of runs, prints them and writes them down.

  Args:
    groups: From `run_groups`.
    output: Path without an ending: writes <output>.csv, <output>.md (with the
      commands and the single runs), <output>.png and what it shows,
      <output>_curves.csv, and <output>_published.png where there are published
      figures. `None` writes nothing.
    curves: Columns of metrics.csv for the picture; `None` for the usual ones.
    against: Name of the group to which the others' differences are given
      (`paired_differences`); `None` gives none.

  Returns:
    The table, a row per group (`summary_tables.of_groups`).

  Raises:
    UsageError: If a curve is in none of the runs, or no group has the name
      `against`.
  """
  table = summary_tables.of_groups(groups)
  text = summary_tables.as_text(table)
  if against is not None:
    text += f'\n\n{paired_differences.as_text(groups, against)}'
  if output is not None:
    output.parent.mkdir(parents=True, exist_ok=True)
    runs = run_groups.by_run(groups)
    drawn = mean_curves.read(runs, curves)
    mean_curves.plot(drawn, _with_ending(output, '.png'))
    with whole_files.replacing(_with_ending(output, '_curves.csv')) as file:
      drawn.to_csv(file, index=False, float_format='%.4g')
    with whole_files.replacing(_with_ending(output, '.csv')) as file:
      table.to_csv(file, index=False)
    if table['published'].notna().any():
      beside = published_figures.draw(table)
      with whole_files.replacing(
        _with_ending(output, '_published.png')
      ) as file:
        beside.savefig(file, format='png', dpi=120)
    with whole_files.replacing(_with_ending(output, '.md')) as file:
      file.write(_markdown(text, groups, runs).encode())
  print(text)
  return table


def _with_ending(path, ending) -> pathlib.Path:
  # Not `with_suffix`: what follows a dot belongs to the name (scale0.1).
  return path.with_name(path.name + ending)


def _markdown(text, groups, runs) -> str:
  parts = [text]
  if summary_tables.has_measures(groups):
    values = summary_tables.of_seeds(groups)
    parts += ['Values by seed:', summary_tables.as_markdown(values)]
  parts += summary_tables.notes(groups)
  parts += [
    'Single runs:',
    summary_tables.as_markdown(summary_tables.of_runs(runs)),
    'Commands:',
    *(f'    {run.command}' for run in runs),
  ]
  return '\n\n'.join(parts) + '\n'


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  parser = argparse.ArgumentParser(
    'python -m experiments.report', description=__doc__.partition('\n\n')[2]
  )
  parser.add_argument(
    'runs', nargs='+', type=pathlib.Path, metavar='RUN', help='run folder'
  )
  parser.add_argument(
    '--output',
    type=pathlib.Path,
    help='path without an ending: writes OUTPUT.csv, .md, .png, _curves.csv '
    'and, where there are published figures, _published.png',
  )
  parser.add_argument(
    '--curves',
    help='columns of metrics.csv for the picture, such as accuracy,mask_rate',
  )
  parser.add_argument(
    '--against',
    help='name of a row: the differences of the others to it, paired by seed',
  )
  arguments = parser.parse_args(argv[1:])
  curves = arguments.curves.split(',') if arguments.curves else None
  if curves and not arguments.output:
    parser.error('--curves needs --output: it names what the picture shows')
  try:
    report(arguments.runs, arguments.output, curves, arguments.against)
  except UsageError as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
