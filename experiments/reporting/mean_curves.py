"""Curves of groups of runs: the mean over seeds, and the band of all seeds."""

import pathlib
from collections.abc import Sequence

import pandas as pd
from cycler import cycler
from matplotlib import axes as axes_lib
from matplotlib import colormaps, figure

from experiments.config.usage import UsageError
from experiments.reporting.run_groups import Group
from tff_ssl.common import whole_files

# Inches of a panel's width, letters of small print that fit into it, and how
# many of them the key before a name takes.
_WIDTH = 7
_LETTERS = 90
_KEY_LETTERS = 7

# Columns of metrics.csv drawn where a run has them -> their names on the axis.
_NAMES = {
  'accuracy': 'test accuracy',
  'mask_rate': 'mask rate',
  'pseudo_label_accuracy': 'accuracy of pseudo-labels',
  'test_proxy_loss': 'test loss of the proxy task',
}
_DIVERSITY = 'diversity'
_MAX_IN_ONE_COLUMN = 3
# Where there are more groups than colours, they repeat with another line style.
_STYLES = cycler(linestyle=['-', '--', ':', '-.']) * cycler(
  color=colormaps['tab10'].colors
)


def read(
  groups: Sequence[Group], curves: Sequence[str] | None = None
) -> pd.DataFrame:
  """Reads the curves of runs.

  Args:
    groups: From `run_groups.by_run`.
    curves: Columns of metrics.csv; by default test accuracy, mask rate,
      accuracy of pseudo-labels, the proxy task's test loss and gradient
      diversity, where runs have them.

  Returns:
    A row for each round in which a run has some value: `run`, `seed`, `round`,
    and a column for each curve.

  Raises:
    UsageError: If no run has a column.
  """
  together = read_all(groups)
  columns = _columns(list(together.columns), curves)
  chosen = together[['run', 'seed', 'round', *columns]]
  return chosen.dropna(subset=columns, how='all')


def read_all(groups: Sequence[Group]) -> pd.DataFrame:
  """Reads all columns of metrics.csv that some run has a value in.

  Args:
    groups: From `run_groups.by_run`.

  Returns:
    A row for each run and round, with `run` and `seed` beside the columns.
  """
  return pd.concat(
    [
      pd.read_csv(folder / 'metrics.csv')
      .dropna(axis='columns', how='all')
      .assign(run=group.name, seed=summary['seed'])
      for group in groups
      for folder, summary in zip(group.folders, group.summaries, strict=True)
    ],
    ignore_index=True,
  )


def plot(table: pd.DataFrame, path: pathlib.Path) -> None:
  """Draws a panel for each curve and a line for each group of runs.

  Args:
    table: From `read`.
    path: The PNG file to write.
  """
  columns = list(table.columns.drop(['run', 'seed', 'round']))
  runs = table['run'].unique()
  width = 1 if len(columns) <= _MAX_IN_ONE_COLUMN else 2
  height = -(-len(columns) // width)
  legend_columns = columns_of_legend(runs, _WIDTH * width)
  legend_lines = -(-len(runs) // legend_columns)
  picture = figure.Figure(
    figsize=(_WIDTH * width, 3 * height + 0.3 + 0.2 * legend_lines),
    layout='constrained',
  )
  panels = list(picture.subplots(height, width, squeeze=False).flat)
  for axes, column in zip(panels, columns, strict=False):
    axes.set_prop_cycle(_STYLES)
    for run in runs:
      of_run = table[table['run'] == run]
      draw_line(axes, run, of_run.pivot(index='round', columns='seed')[column])
    axes.set(xlabel='round', ylabel=_NAMES.get(column, column))
    axes.grid(alpha=0.3)
  for axes in panels[len(columns) :]:
    axes.remove()
  add_legend(picture, legend_columns)
  with whole_files.replacing(path) as file:
    picture.savefig(file, format='png', dpi=120)


def _columns(present, wanted) -> list[str]:
  if wanted is None:
    return [column for column in _NAMES if column in present] + [
      column for column in present if column.startswith(_DIVERSITY)
    ]
  for column in wanted:
    if column not in present:
      raise UsageError(
        f'--curves={column} is in no metrics.csv of these runs; there are '
        f'{", ".join(present)}.'
      )
  return list(wanted)


def columns_of_legend(names: Sequence[str], inches: float) -> int:
  """Returns how many names stand side by side in the legend of a picture.

  Args:
    names: Of the lines.
    inches: Width of the picture.
  """
  # A column of the legend is as wide as its longest name.
  longest = max(map(len, names))
  return max(1, int(_LETTERS * inches / _WIDTH) // (longest + _KEY_LETTERS))


def add_legend(picture: figure.Figure, columns: int) -> None:
  """Adds the legend of all panels, which have the same lines, below them.

  Args:
    picture: The picture, with its lines drawn.
    columns: At most as many names stand side by side.
  """
  handles, names = picture.axes[0].get_legend_handles_labels()
  picture.legend(
    handles,
    names,
    loc='outside lower center',
    ncols=min(len(names), columns),
    fontsize='small',
  )


def band(by_seed: pd.DataFrame) -> pd.DataFrame:
  """Returns mean and band where all seeds that have the curve have a value.

  Args:
    by_seed: A column for each seed, a row for each round.

  Returns:
    `mean`, `low` and `high`, the least and the greatest value, by round; no
    row where no seed has the curve.
  """
  together = by_seed.dropna(axis='columns', how='all').dropna()
  if together.empty:
    return pd.DataFrame(columns=['mean', 'low', 'high'], dtype=float)
  return together.agg(['mean', 'min', 'max'], axis='columns').set_axis(
    ['mean', 'low', 'high'], axis='columns'
  )


def draw_line(axes: axes_lib.Axes, name: str, by_seed: pd.DataFrame) -> None:
  """Draws one group: the mean of its seeds in their `band`.

  Args:
    axes: Where.
    name: Of the line.
    by_seed: As in `band`.
  """
  drawn = band(by_seed)
  (line,) = axes.plot(drawn.index, drawn['mean'], label=name)
  if len(drawn):
    axes.fill_between(
      drawn.index,
      drawn['low'],
      drawn['high'],
      color=line.get_color(),
      alpha=0.2,
      linewidth=0,
    )
