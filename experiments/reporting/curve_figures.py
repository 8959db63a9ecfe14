"""Pictures of accuracy over rounds, designed for a page.

Each curve is the mean over seeds with a band of all of them, and has its name
at its end. Bounds are grey. A control has the colour of its system, and is
dashed.
"""

import dataclasses
import io
import os
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import axes as axes_lib
from matplotlib import figure, ticker
from PIL import Image
from sklearn import isotonic

from experiments.reporting import mean_curves
from tff_ssl.common import whole_files

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


@dataclasses.dataclass(frozen=True)
class Line:
  """A curve of a picture.

  Attributes:
    run: The value of the column `run`.
    label: What stands at its end.
    colour: A key of `COLOURS`: 'grey' for bounds, one of the others for a
      system.
    is_control: Whether it is the control of the system of this colour, or a
      system with one part changed.
  """

  run: str
  label: str
  colour: str = 'blue'
  is_control: bool = False


@dataclasses.dataclass(frozen=True)
class Panel:
  """Curves that share two axes.

  Attributes:
    curves: As `mean_curves.read` returns them.
    lines: Those that are drawn.
    lowest: Where the axis of accuracy begins.
    highest: Where it ends.
    title: What stands above; none by default.
  """

  curves: pd.DataFrame
  lines: tuple[Line, ...]
  lowest: float = 0.0
  highest: float = 1.0
  title: str = ''


def draw(panels: Sequence[Panel], path: str | os.PathLike) -> None:
  """Draws test accuracy over rounds, the panels side by side.

  Args:
    panels: At least one.
    path: The PNG file to write.

  Raises:
    ValueError: If a run of a panel is not in its curves.
  """
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


def _draw_line(
  axes: axes_lib.Axes, curves: pd.DataFrame, line: Line
) -> tuple[int, float]:
  """Draws a curve with its band; returns its last round and the mean there."""
  own = curves[curves['run'] == line.run].dropna(subset=['accuracy'])
  if own.empty:
    raise ValueError(f'The run {line.run} is not among the curves.')
  drawn = mean_curves.band(
    own.pivot(index='round', columns='seed', values='accuracy')
  )
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
