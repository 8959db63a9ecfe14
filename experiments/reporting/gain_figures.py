"""Pictures of what unlabelled clients give, between the bounds.

Each curve is the mean over seeds with a band of all of them, and has its name
at its end. Bounds are grey.
"""

import dataclasses
import os

import numpy as np
import pandas as pd
from matplotlib import figure, ticker

from tff_ssl import whole_files

_GREY = '0.45'
_BLUE = '#1f77b4'
_RED = '#c44e52'
_COLOURS = {'bound': _GREY, 'system': _BLUE, 'other': _RED}


@dataclasses.dataclass(frozen=True)
class Line:
  """A curve of a picture.

  Attributes:
    run: The value of the column `run`.
    label: What stands at its end.
    kind: 'bound', 'system' or 'other', which decide its colour.
  """

  run: str
  label: str
  kind: str = 'system'


def draw(
  curves: pd.DataFrame,
  lines: tuple[Line, ...],
  path: str | os.PathLike,
  *,
  lowest: float,
) -> None:
  """Draws test accuracy over rounds.

  Args:
    curves: As `mean_curves.read` returns them.
    lines: The curves of the picture.
    path: The PNG file to write.
    lowest: Where the axis of accuracy begins.

  Raises:
    ValueError: If a run of `lines` is not in `curves`.
  """
  picture = figure.Figure(figsize=(8, 4), layout='constrained')
  axes = picture.subplots()
  ends = []
  for line in lines:
    own = curves[curves['run'] == line.run].dropna(subset=['accuracy'])
    if own.empty:
      raise ValueError(f'The run {line.run} is not among the curves.')
    accuracy = own.pivot(index='round', columns='seed', values='accuracy')
    mean, colour = accuracy.mean(axis=1), _COLOURS[line.kind]
    axes.plot(mean.index, mean, color=colour, linewidth=2)
    axes.fill_between(
      accuracy.index,
      accuracy.min(axis=1),
      accuracy.max(axis=1),
      color=colour,
      alpha=0.2,
      linewidth=0,
    )
    ends.append((mean.iloc[-1], line.label, colour))
  last = int(curves['round'].max())
  for (_, label, colour), height in zip(
    ends, _apart([end for end, *_ in ends], (1 - lowest) / 14), strict=True
  ):
    axes.annotate(
      label,
      (last, height),
      xytext=(6, 0),
      textcoords='offset points',
      color=colour,
      va='center',
      fontsize=11,
      annotation_clip=False,
    )
  axes.set(xlabel='round', ylabel='test accuracy', ylim=(lowest, 1))
  axes.set_xlim(0, last)
  axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
  axes.spines[['top', 'right']].set_visible(False)
  axes.grid(axis='y', alpha=0.3)
  with whole_files.replacing(path) as file:
    picture.savefig(file, format='png', dpi=160)


def _apart(heights: list[float], gap: float) -> list[float]:
  """Returns the heights, moved so far that none is closer than `gap`."""
  order = np.argsort(heights)
  placed = np.array(heights, float)
  for below, above in zip(order, order[1:], strict=False):
    placed[above] = max(placed[above], placed[below] + gap)
  return placed.tolist()
