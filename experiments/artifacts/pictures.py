"""The curves of a run, and what pictures of runs have in common."""

import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import figure, ticker

from tff_ssl.common import whole_files

# Of Okabe and Ito: people with any kind of colour vision tell them apart.
COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9')
# What is drawn and what is left out, for prints in black and white.
DASHES = ((), (7, 3), (2, 2), (7, 2, 2, 2), (14, 3), (7, 2, 2, 2, 2, 2))
# Panels of the curves: the name of the axis, and column -> its name there.
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


def draw_curves(
  metrics_csv, path, title: str, phases: Sequence[tuple[str, int]] = ()
) -> None:
  """Draws the shares of examples in a metrics.csv, and losses beside them.

  `phases` says what the first rounds are for, and how many they are, the
  shortest first; they are shaded.
  """
  table = pd.read_csv(metrics_csv)
  panels = {
    name: columns
    for name, columns in _PANELS.items()
    if any(_has(table, column) for column in columns)
  }
  picture = figure.Figure(figsize=(6, 4 * len(panels)), layout='constrained')
  for axes, (name, columns) in zip(
    picture.subplots(len(panels), squeeze=False).flat,
    panels.items(),
    strict=True,
  ):
    for column, label in columns.items():
      if _has(table, column):
        line = table[['round', column]].dropna()
        axes.plot(line['round'], line[column], label=label)
    fit_axes(axes, name)
    begin = 0
    for shade, (phase, end) in enumerate(phases):
      color = _SHADES[shade % len(_SHADES)]
      axes.axvspan(begin, end, color=color, zorder=0, label=phase)
      begin = end
    axes.legend(loc='best')
  # A dollar sign in a user's name is no formula.
  picture.suptitle(title, parse_math=False)
  save(picture, path)


def fit_axes(axes, name: str) -> None:
  """Fits axes to curves over rounds; `name` is that of the vertical one."""
  begin, end = limits(*axes.dataLim.intervaly)
  axes.set(ylim=(begin, end), xlabel='round', ylabel=axis_name(name, begin))
  axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
  axes.grid(alpha=0.3)


def limits(lowest: float, highest: float) -> tuple[float, float]:
  """Returns limits of an axis that leave less than half of it empty.

  They are multiples of the distance between ticks. It begins at 0 if it may.
  """
  if not np.isfinite([lowest, highest]).all() or lowest == highest == 0:
    return 0.0, 1.0
  begin = 0.0
  if lowest > highest / 2 or lowest < 0:
    # A line of equal values gets an axis, too.
    begin = lowest - 0.01 * abs(highest)
  ticks = ticker.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
  first, *_, last = ticks.tick_values(begin, highest)
  return float(first), float(last)


def axis_name(name: str, begin: float) -> str:
  """Returns the name of an axis, which says where it begins if not at 0."""
  return f'{name}, axis from {begin:.4g}' if begin > 0 else name


def _has(table: pd.DataFrame, column: str) -> bool:
  return column in table and bool(table[column].notna().any())


def save(picture: figure.Figure, path: pathlib.Path, dpi: int = 120) -> None:
  """Writes a picture as PNG."""
  with whole_files.replacing(path) as file:
    picture.savefig(file, format='png', dpi=dpi)
