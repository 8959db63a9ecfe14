"""A picture of what faults of clients cost, by method and aggregator."""

import os

import pandas as pd
from matplotlib import figure

from tff_ssl.common import whole_files

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


def draw(last: pd.DataFrame, path: str | os.PathLike) -> None:
  """Draws accuracy with 30% of each fault, a panel for each method.

  Each point is a mean over seeds, with a line from the lowest to the highest. A
  cross at the left stands for runs that end since no update is finite.

  Args:
    last: Accuracy at the end, a row for each run of the table `robustness` and
      a column for each seed; runs that end are missing.
    path: The PNG file to write.
  """
  picture = figure.Figure(figsize=(10, 4.2), layout='constrained')
  panels = picture.subplots(1, len(METHODS), sharey=True)
  for axes, (method, title) in zip(panels, METHODS.items(), strict=True):
    for place, (name, mark) in enumerate(AGGREGATORS.items()):
      _draw_aggregator(axes, last, method, name, mark, (place - 1) * _OFFSET)
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


def _draw_aggregator(axes, last, method, name, mark, offset) -> None:
  ending, colour, marker = mark
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
