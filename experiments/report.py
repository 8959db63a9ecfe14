"""Compares finished runs: `python -m experiments.report --help`.

Runs that differ only by seed are one row of the table: the published figure,
ours with its spread over the seeds, and the difference.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from etils import epy

from experiments.artifacts import csv_files, durable_files, results
from experiments.config import command_line, side_commands
from experiments.config.command_line import UsageError
from tff_ssl.common import user_modules
from tff_ssl.common.setting import Setting

# They take seconds to import, which --help does not need.
with epy.lazy_imports():
  import pandas as pd

  from experiments.artifacts import pictures as run_pictures
  from experiments.reporting import (
    pictures,
    run_groups,
    run_page,
    summary_tables,
  )

COMMAND = side_commands.Command(
  'report',
  'Compares finished runs in a table. Runs that differ only by seed are one '
  'row: the published figure, ours with its spread, and the difference.',
  'runs/a_seed0 runs/a_seed1 --output=results/a',
  (
    dataclasses.replace(
      side_commands.OUTPUT,
      help='Path without an ending: writes OUTPUT.csv, .md, .png and '
      '_curves.csv.',
    ),
    Setting(
      'curves',
      str,
      'Columns of metrics.csv for the picture, such as accuracy,mask_rate.',
    ),
    Setting(
      'diversity',
      str,
      'PNG file to write: all variants of gradient diversity over rounds, with '
      'accuracy and the number of clients, for at most six rows.',
    ),
    Setting(
      'html',
      str,
      'HTML file to write: one page with all that a person wants to see of '
      'these runs, in charts and tables. It needs no other file and no '
      'network.',
    ),
    Setting(
      'latex',
      str,
      'LaTeX file to write: the tables, for the package booktabs.',
    ),
    side_commands.AGAINST,
    side_commands.JSON,
  ),
  arguments='RUN_DIR...',
)


# What `--NAME=FILE` of a page or picture ends with.
_ENDINGS = {'diversity': '.png', 'html': '.html', 'latex': '.tex'}


def report(
  run_dirs: Sequence[pathlib.Path], output: pathlib.Path | None = None, **more
) -> pd.DataFrame:
  """Compares finished runs; see `write`, which takes the rest."""
  return write(run_groups.read_groups(run_dirs), output, **more)


def write(
  groups: Sequence[run_groups.Group],
  output: pathlib.Path | None = None,
  *,
  curves: Sequence[str] | None = None,
  against: str | None = None,
  diversity: pathlib.Path | None = None,
  html: pathlib.Path | None = None,
  latex: pathlib.Path | None = None,
  found: dict[str, Any] | None = None,
) -> pd.DataFrame:
  """Compares groups of runs, prints them, and writes what has a path.

  The arguments are the flags of this command, and a dictionary for what
  `--json` prints; returns the table of `summary_tables.of_groups`.
  """
  with user_modules.only_of((), 'a report does without it'):
    table = summary_tables.of_groups(groups)
    text = summary_tables.as_text(table)
    if against is not None:
      text += f'\n\n{summary_tables.differences_as_text(groups, against)}'
    runs = run_groups.by_run(groups)
    if diversity is not None:
      picture = pictures.of_diversity(runs)
      diversity.parent.mkdir(parents=True, exist_ok=True)
      run_pictures.save(picture, diversity, dpi=100)
    if html is not None:
      html.parent.mkdir(parents=True, exist_ok=True)
      run_page.write(groups, html, against)
    if latex is not None:
      latex.parent.mkdir(parents=True, exist_ok=True)
      durable_files.write(latex, _latex(table, groups, against).encode())
    if output is not None:
      _write_all(output, table, _markdown(text, groups, runs), runs, curves)
    if found is not None:
      found.update(_document(table, groups, against))
  print(text)
  for written in filter(None, (html, latex)):
    print(f'\nWritten to {written}.')
  return table


def _document(table, groups, against) -> dict[str, Any]:
  found = {
    'rows': table.to_dict('records'),
    'runs': [
      {'name': group.name, **results.of_folder(folder)}
      for group in groups
      for folder in group.folders
    ],
  }
  if against is not None:
    differences = summary_tables.differences(groups, against)
    found['differences'] = differences.to_dict('records')
  return found


def _write_all(output, table, markdown: str, runs, curves) -> None:
  """Writes what has the path `output` and an ending."""

  def path(ending):
    # Not `with_suffix`: what follows a dot belongs to the name (scale0.1).
    return output.with_name(output.name + ending)

  drawn = pictures.read(runs, curves)
  output.parent.mkdir(parents=True, exist_ok=True)
  run_pictures.save(pictures.of_curves(drawn), path('.png'))
  csv_files.write_table(
    drawn, path('_curves.csv'), index=False, float_format='%.4g'
  )
  csv_files.write_table(table, path('.csv'), index=False)
  durable_files.write(path('.md'), markdown.encode())


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


def _latex(table, groups, against) -> str:
  """Returns the tables, each below its caption as a comment."""
  data = '; '.join(' '.join(each.split()) for each in table['data'].unique())
  tables = {f'Data: {data}.': table.drop(columns='data')}
  if summary_tables.has_measures(groups):
    tables['Values by seed.'] = summary_tables.of_seeds(groups)
  if against is not None:
    tables[f'Minus {against}, paired by seed.'] = summary_tables.differences(
      groups, against
    )
  return '\n'.join(
    f'% {caption}\n{summary_tables.as_markdown(each, "latex_booktabs")}\n'
    for caption, each in tables.items()
  )


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  return COMMAND.main(argv, _run)


def _run(values, run_dirs: list[str]) -> int:
  curves = values.curves.split(',') if values.curves else None
  if curves and not values.output:
    raise UsageError(
      f'--curves={values.curves} needs --output: it names what the picture '
      'shows.'
    )
  files = {}
  for name, ending in _ENDINGS.items():
    if path := getattr(values, name):
      if not path.endswith(ending):
        raise UsageError(f'--{name}={path} must end with {ending}.')
      files[name] = pathlib.Path(path)
  output = pathlib.Path(values.output) if values.output else None
  more = {'curves': curves, 'against': values.against, **files}
  if values.json:
    more['found'] = values.found
  report([pathlib.Path(run) for run in run_dirs], output, **more)
  return 0


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
