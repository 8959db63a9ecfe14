"""How the designed pictures of pages are drawn."""

import dataclasses
import functools
import io
import os
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import axes as axes_lib
from matplotlib import figure, ticker
from PIL import Image
from sklearn import isotonic

from experiments.reporting import pictures
from tff_ssl.common import whole_files
from tools import stored_results

COLOURS = {
  'grey': '0.45',
  'blue': '#1f77b4',
  'red': '#c44e52',
  'green': '#3a923a',
  'orange': '#d1711e',
}
_HEIGHT_INCHES = 4
_DOTS_PER_INCH = 130
# A palette makes a file a third as large, and the eye sees no difference.
_NUM_COLOURS = 256
# Share of a panel's height that the name of a curve takes.
_NAME_HEIGHT = 1 / 15
# Where names begin, in widths of the panel.
_NAME_LEFT = 1.05

# Of the picture of faults: methods, faults with their names in the runs, and
# aggregators with the ending of their runs, colour and marker.
METHODS = {'grouping': 'grouping', 'fedlabel': 'FedLabel', 'fedul': 'FedUL'}
FAULTS = {
  'none': 'sound clients',
  'drop30': 'drop out',
  'late30': 'stragglers',
  'nan30': 'not a number',
  'exploding30': 'exploding',
  'labels30': 'flipped labels',
  'signs30': 'flipped signs',
  'stale30': 'stale',
}
AGGREGATORS = {
  'mean': ('', '0.35', 'o'),
  'robust': ('_robust', '#1f77b4', 's'),
  'median': ('_median', '#c44e52', '^'),
}
_OFFSET = 0.22


@dataclasses.dataclass(frozen=True)
class Line:
  """A curve of a picture: the mean over seeds, with a band of all of them.

  Attributes:
    run: The value of the column `run`.
    label: What stands at its end.
    colour: A key of `COLOURS`: 'grey' for bounds, another for each system.
    is_control: Whether it is dashed, as the control of the system of this
      colour, or one with a part changed.
  """

  run: str
  label: str
  colour: str = 'blue'
  is_control: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
  """Curves that share two axes.

  Attributes:
    tables: Names of `results/NAME_curves.csv`; a run that several have is that
      of the first.
    lowest: Where the axis of accuracy begins.
    highest: Where it ends.
  """

  tables: tuple[str, ...]
  lines: tuple[Line, ...]
  title: str = ''
  lowest: float = 0.0
  highest: float = 1.0

  @functools.cached_property
  def curves(self) -> pd.DataFrame:
    """The rows of the tables."""
    together = pd.concat(
      pd.read_csv(stored_results.RESULTS / f'{name}_curves.csv').assign(table=n)
      for n, name in enumerate(self.tables)
    )
    first = together.groupby(['run', 'seed'])['table'].transform('min')
    return together[together['table'] == first].drop(columns='table')


def draw_curves(panels: Sequence[Panel], path: str | os.PathLike) -> None:
  """Draws test accuracy over rounds as PNG, the panels side by side."""
  width = 8 if len(panels) == 1 else 6 * len(panels)
  picture = figure.Figure(figsize=(width, _HEIGHT_INCHES), layout='constrained')
  all_axes = picture.subplots(1, len(panels), squeeze=False).flat
  for axes, panel in zip(all_axes, panels, strict=True):
    _draw_panel(axes, panel)
  all_axes[0].set_ylabel('test accuracy')
  drawn = io.BytesIO()
  picture.savefig(drawn, format='png', dpi=_DOTS_PER_INCH)
  small = (
    Image.open(drawn)
    .convert('RGB')
    .quantize(_NUM_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
  )
  with whole_files.replacing(path) as file:
    small.save(file, format='png', optimize=True)


def _draw_panel(axes: axes_lib.Axes, panel: Panel) -> None:
  ends = [_draw_line(axes, panel.curves, line) for line in panel.lines]
  bounds = (panel.lowest, panel.highest)
  gap = (panel.highest - panel.lowest) * _NAME_HEIGHT
  heights = _apart([height for _, height in ends], gap, *bounds)
  for line, end, height in zip(panel.lines, ends, heights, strict=True):
    colour = COLOURS[line.colour]
    axes.annotate(
      line.label,
      end,
      xytext=(_NAME_LEFT, height),
      textcoords=axes.get_yaxis_transform(),
      color=colour,
      va='center',
      fontsize=10,
      annotation_clip=False,
      arrowprops={
        'arrowstyle': '-',
        'color': colour,
        'linewidth': 0.7,
        'relpos': (0, 0.5),
      },
    )
  axes.set(xlabel='round', ylim=bounds, xlim=(0, max(last for last, _ in ends)))
  axes.set_title(panel.title, loc='left', fontsize=11)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
  axes.spines[['top', 'right']].set_visible(False)
  axes.grid(axis='y', alpha=0.3)


def _draw_line(axes, curves: pd.DataFrame, line: Line) -> tuple[int, float]:
  """Draws a curve with its band; returns its last round and the mean there."""
  drawn = pictures.band_of(curves, line.run, 'accuracy')
  if drawn.empty:
    raise ValueError(f'The run {line.run} is not among the curves.')
  colour, style = COLOURS[line.colour], '--' if line.is_control else '-'
  axes.plot(drawn.index, drawn['mean'], style, color=colour, linewidth=2)
  axes.fill_between(
    drawn.index,
    drawn['low'],
    drawn['high'],
    color=colour,
    alpha=0.1 if line.is_control else 0.2,
    linewidth=0,
  )
  return int(drawn.index[-1]), drawn['mean'].iloc[-1]


def _apart(
  heights: Sequence[float], gap: float, lowest: float, highest: float
) -> np.ndarray:
  """Returns the heights, moved as little as keeps names legible.

  They keep their order, no two are closer than `gap`, and all are between
  `lowest` and `highest`. "Little" is the sum of the squares.
  """
  order = np.argsort(heights)
  # With a gap for each name below subtracted, the order is all that is asked.
  steps = gap * np.arange(len(heights))
  placed = np.empty(len(heights))
  placed[order] = steps + isotonic.isotonic_regression(
    np.asarray(heights, float)[order] - steps,
    y_min=lowest,
    y_max=highest - steps[-1],
  )
  return placed


def draw_faults(last: pd.DataFrame, path: str | os.PathLike) -> None:
  """Draws accuracy with 30% of each fault, a panel for each method.

  Each point is a mean over seeds, with a line from the lowest to the highest. A
  cross at the left stands for runs that end since no update is finite; they are
  missing in `last`, of a row for each run and a column for each seed.
  """
  picture = figure.Figure(figsize=(10, 4.2), layout='constrained')
  panels = picture.subplots(1, len(METHODS), sharey=True)
  for axes, (method, title) in zip(panels, METHODS.items(), strict=True):
    for place, name in enumerate(AGGREGATORS):
      _draw_aggregator(axes, last, method, name, (place - 1) * _OFFSET)
    if method == 'grouping':
      alone = last.loc['server_only'].mean()
      axes.axvline(alone, color='0.7', linewidth=1)
      axes.annotate(
        'server alone',
        (alone, 0.5),
        xytext=(-4, 0),
        textcoords='offset points',
        ha='right',
        color='0.5',
        fontsize=9,
      )
    axes.set(xlim=(0, 1), title=title, xlabel='test accuracy')
    axes.grid(axis='x', alpha=0.3)
    axes.spines[['top', 'right', 'left']].set_visible(False)
    axes.tick_params(left=False)
  panels[0].set_yticks(range(len(FAULTS)), FAULTS.values())
  panels[0].invert_yaxis()
  panels[-1].legend(frameon=False, loc='lower left', fontsize=9)
  with whole_files.replacing(path) as file:
    picture.savefig(file, format='png', dpi=160)


def _draw_aggregator(axes, last, method, name, offset) -> None:
  ending, colour, marker = AGGREGATORS[name]
  style = {'color': colour, 'label': name}
  for row, fault in enumerate(FAULTS):
    run = f'{method}_{fault}{ending}'
    is_refused = method == 'grouping' and fault == 'labels30'
    if is_refused or (ending and fault in ('drop30', 'late30', 'nan30')):
      continue
    if run not in last.index:
      axes.plot(0.02, row + offset, 'x', color=colour, clip_on=False)
      continue
    seeds = last.loc[run].dropna()
    axes.plot(
      [seeds.min(), seeds.max()], [row + offset] * 2, color=colour, linewidth=1
    )
    axes.plot(seeds.mean(), row + offset, marker, markersize=5, **style)
    style['label'] = None
