"""Curves of a run as PNG, read from its metrics.csv."""

from collections.abc import Sequence

import pandas as pd
from matplotlib import figure, ticker

from tff_ssl.common import whole_files

# Panels: the name of the axis, and column -> its name in the picture.
_PANELS = {
  'share of examples': {
    'accuracy': 'test accuracy',
    'validation_accuracy': 'validation accuracy',
    'mask_rate': 'mask rate',
    'pseudo_label_accuracy': 'accuracy of pseudo-labels',
  },
  'loss': {
    'test_loss': 'test loss',
    'train_loss': "clients' loss",
    'server_loss': "server's loss",
  },
}
_SHADES = ('0.88', '0.94')


def plot(
  metrics_csv, path, title: str, phases: Sequence[tuple[str, int]] = ()
) -> None:
  """Draws shares of examples over rounds, and losses beside them.

  Shares are those in [0, 1]: accuracy, mask rate and accuracy of pseudo-labels.

  Args:
    metrics_csv: The run's metrics.csv.
    path: The PNG file to write.
    title: Title of the picture.
    phases: What the first rounds are for, and how many they are
      (`experiments.config.parts_of_run.phases_of`); they are shaded.
  """
  table = pd.read_csv(metrics_csv)
  panels = {
    name: columns
    for name, columns in _PANELS.items()
    if any(_has(table, column) for column in columns)
  }
  picture = figure.Figure(figsize=(7 * len(panels), 4), layout='constrained')
  for axes, (name, columns) in zip(
    picture.subplots(1, len(panels), squeeze=False).flat,
    panels.items(),
    strict=True,
  ):
    for column, label in columns.items():
      if _has(table, column):
        line = table[['round', column]].dropna()
        axes.plot(line['round'], line[column], label=label)
    axes.set(xlabel='round', ylabel=name)
    axes.set_ylim(*((0, None) if name == 'loss' else (0, 1)))
    mark_phases(axes, phases)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(loc='best')
  # A dollar sign in a user's name is no formula.
  picture.suptitle(title, parse_math=False)
  with whole_files.replacing(path) as file:
    picture.savefig(file, format='png', dpi=120)


def mark_phases(axes, phases: Sequence[tuple[str, int]]) -> None:
  """Shades the first rounds of a run that are for something else.

  Args:
    axes: Where rounds are the x axis.
    phases: As in `plot`; the shortest first.
  """
  begin = 0
  for place, (name, end) in enumerate(phases):
    axes.axvspan(
      begin, end, color=_SHADES[place % len(_SHADES)], zorder=0, label=name
    )
    begin = end


def _has(table: pd.DataFrame, column: str) -> bool:
  return column in table and bool(table[column].notna().any())
