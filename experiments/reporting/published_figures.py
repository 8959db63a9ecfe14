"""A picture of a report's table: each row's figure beside the published one."""

import numpy as np
import pandas as pd
from matplotlib import figure

_OURS, _PUBLISHED = 'here', 'published'


def draw(table: pd.DataFrame) -> figure.Figure:
  """Draws a panel for each measure, with a line for each row.

  Args:
    table: From `summary_tables.of_groups`. Labels mark the rows of shortened
      runs, and those whose flags differ from their recipe.

  Returns:
    The picture: our mean, from three seeds on with its interval, and the
    published figure where there is one.
  """
  measures = table.get('measure', pd.Series('accuracy', index=table.index))
  groups = list(table.groupby(measures, sort=False))
  picture = figure.Figure(
    figsize=(7, 1 + 0.9 * len(groups) + 0.22 * len(table)), layout='constrained'
  )
  panels = picture.subplots(
    len(groups),
    squeeze=False,
    height_ratios=[2 + len(rows) for _, rows in groups],
  ).flat
  for axes, (measure, rows) in zip(panels, groups, strict=True):
    places = np.arange(len(rows))
    mean = rows['mean'].astype(float)
    # Without an interval there is nothing to either side.
    sides = [
      (mean - rows[end].astype(float)).abs().fillna(0)
      for end in ('low', 'high')
    ]
    axes.errorbar(mean, places, xerr=np.stack(sides), fmt='o', label=_OURS)
    published = rows['published'].astype(float)
    axes.plot(published, places, 'D', markerfacecolor='none', label=_PUBLISHED)
    axes.set_yticks(places, map(_name, rows.to_dict('records')))
    axes.tick_params(axis='y', labelsize='small')
    axes.invert_yaxis()
    axes.set_xlabel(measure)
    axes.grid(alpha=0.3)
  handles, names = picture.axes[0].get_legend_handles_labels()
  picture.legend(handles, names, loc='outside upper center', ncols=2)
  return picture


def _name(row) -> str:
  notes = []
  if row['scale'] < 1:
    notes.append(f'{row["scale"]:g} of the rounds')
  if isinstance(row.get('changed'), str):
    notes.append('changed')
  return f'{row["name"]} ({", ".join(notes)})' if notes else row['name']
