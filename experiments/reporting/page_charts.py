"""The interactive charts of a page of runs, drawn with bokeh.

Texts of users stand in a chart only where the browser takes them as plain text:
in hover boxes, which bokeh escapes, and as `PlainText` along an axis. Bokeh
would read a formula out of any other string, and fetch what sets formulas.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh import embed, models, palettes, plotting, resources

from experiments.artifacts import pictures

_TEXT, _GRID = '#444444', '#dddddd'
# Light is none, dark is most.
_PALETTE = tuple(reversed(palettes.Blues256))
_UNKNOWN = '#c8c8c8'
# More names along an axis cannot be read.
_MOST_NAMES = 20
_LONGEST_NAME = 14
_BINS = 20
# What a band has at a round, or at the last one before.
_FIGURES = """
const {round, mean, low, high} = bands[format].data
const place = round.findLastIndex((number) => number <= value)
if (place < 0) return "–"
const [m, l, h] = [mean, low, high].map((column) => column[place].toFixed(3))
return l == h ? m : `${m} (${l}–${h})`
"""


def embedded(charts: Mapping[str, plotting.figure]) -> dict[str, Any]:
  """Returns `library`, `script`, and by the names of the charts, `parts`.

  The library is bokeh itself, in elements that load nothing.
  """
  library = resources.Resources(mode='inline', components=['bokeh']).render_js()
  script, parts = embed.components(dict(charts))
  return {'library': library, 'script': script, 'parts': parts}


def curves(
  bands: Mapping[str, pd.DataFrame],
  label: str,
  phases: Sequence[tuple[str, int]] = (),
) -> plotting.figure:
  """Draws a line in a band (`pictures.band_of`) for each system, over rounds.

  `phases` says what the first rounds are for, and how many they are, the
  shortest first; they are shaded.
  """
  finite = {
    name: drawn[np.isfinite(drawn).all(axis='columns')]
    for name, drawn in bands.items()
  }
  # The lowest value of no row is NaN, which `min` may return.
  shown = [drawn for drawn in finite.values() if len(drawn)]
  begin, end = pictures.limits(
    min((drawn['low'].min() for drawn in shown), default=np.nan),
    max((drawn['high'].max() for drawn in shown), default=np.nan),
  )
  chart = _chart('round', pictures.axis_name(label, begin))
  chart.y_range = models.Range1d(begin, end)
  _shade(chart, phases)
  sources = []
  for place, (name, drawn) in enumerate(finite.items()):
    rounds = drawn.index.astype(np.int32).rename('round')
    source = models.ColumnDataSource(drawn.astype(np.float32).set_index(rounds))
    sources.append(source)
    look = {'color': pictures.COLOURS[place]}
    chart.varea('round', 'low', 'high', source=source, alpha=0.2, **look)
    chart.line(
      *('round', 'mean'),
      source=source,
      line_width=2,
      line_dash=pictures.DASHES[place],
      name=name,
      **look,
    )
    if len(drawn) == 1:  # A line of one point cannot be seen.
      chart.scatter('round', 'mean', source=source, **look)
  rounds = np.unique([number for d in finite.values() for number in d.index])
  if rounds.size:
    middles = (rounds[1:] + rounds[:-1]) / 2
    edges = np.array([rounds[0] - 0.5, *middles, rounds[-1] + 0.5])
    _add_strips(
      *(chart, edges, (begin, end), {'round': rounds.astype(np.int32)}),
      {'round': '@round'}
      | {name: f'@round{{{place}}}' for place, name in enumerate(finite)},
      {'@round': models.CustomJSHover(args={'bands': sources}, code=_FIGURES)},
    )
  return chart


def _shade(chart, phases) -> None:
  begin = 0
  for place, (_, end) in enumerate(phases):
    chart.add_layout(
      models.BoxAnnotation(
        left=begin,
        right=end,
        fill_color='#888888',
        fill_alpha=0.2 if place % 2 else 0.12,
        line_color=None,
        level='underlay',
      )
    )
    begin = end


def client_sizes(labelled: np.ndarray, unlabelled: np.ndarray):
  """Draws the examples of each client, labelled ones below unlabelled ones."""
  chart = _chart('client', 'examples')
  source = models.ColumnDataSource(
    {
      'client': np.arange(len(labelled), dtype=np.int32),
      'labelled': labelled.astype(np.int32),
      'unlabelled': unlabelled.astype(np.int32),
    }
  )
  bars = chart.vbar_stack(
    ['labelled', 'unlabelled'],
    x='client',
    width=0.9,
    source=source,
    color=[pictures.COLOURS[1], pictures.COLOURS[5]],
    line_color=None,
  )
  chart.y_range.start = 0
  names = ('client', 'labelled', 'unlabelled')
  _add_box(chart, bars, {name: f'@{name}' for name in names})
  return chart


def histogram(
  values: Mapping[str, np.ndarray], label: str, limits: tuple[float, float]
) -> plotting.figure:
  """Draws how many clients have a figure in each of 20 bins between limits.

  Where these are whole numbers with less than 20 values, each has its own bin.
  """
  chart = _chart(label, 'clients')
  low, high = limits
  is_whole = isinstance(high, int)
  if is_whole and high - low < _BINS:
    edges = np.arange(low, high + 2) - 0.5
  else:
    edges = np.linspace(low, high, _BINS + 1)
  if not is_whole:
    chart.xaxis.ticker = models.BasicTicker()
  counts = {
    f'clients{place}': np.histogram(figures, edges)[0].astype(np.int32)
    for place, figures in enumerate(values.values())
  }
  # The bars of a bin stand beside each other.
  width = 0.9 * np.diff(edges) / len(values)
  for place, heights in enumerate(counts.values()):
    left = edges[:-1] + 0.05 * np.diff(edges) + place * width
    chart.quad(
      left='left',
      right='right',
      top='clients',
      bottom=0,
      source=models.ColumnDataSource(
        {'left': left, 'right': left + width, 'clients': heights}
      ),
      color=pictures.COLOURS[place],
    )
  highest = max(int(heights.max()) for heights in counts.values())
  chart.y_range = models.Range1d(*pictures.limits(0, highest))
  _add_strips(
    *(chart, edges, (0, highest), counts),
    {'clients with': '@left{0.[00]} to @right{0.[00]}'}
    | {name: f'@{column}' for name, column in zip(values, counts, strict=True)},
  )
  return chart


def _add_strips(
  chart, edges, heights, columns, tooltips, formatters=()
) -> None:
  """Adds one box for all systems, at a pointer between two edges."""
  strips = chart.quad(
    left='left',
    right='right',
    bottom=heights[0],
    top=heights[1],
    source=models.ColumnDataSource(
      {'left': edges[:-1], 'right': edges[1:], **columns}
    ),
    fill_alpha=0,
    line_color=None,
    hover_fill_color='#888888',
    hover_fill_alpha=0.2,
  )
  _add_box(chart, [strips], tooltips, formatters)


def _add_box(chart, renderers, tooltips, formatters=()) -> None:
  """Adds a box that says figures where a pointer is, or a finger taps."""
  chart.add_tools(
    models.HoverTool(
      renderers=renderers,
      tooltips=list(tooltips.items()),
      formatters=dict(formatters),
      # Beside it there is no room on a phone.
      attachment='vertical',
    ),
    # Without it, a finger would have to stay on the chart and move.
    models.TapTool(behavior='inspect', renderers=renderers, visible=False),
  )


def _chart(x_label: str, y_label: str, **options) -> plotting.figure:
  """Returns an empty chart that fits any width, and any colour of the page."""
  chart = plotting.figure(
    height=300,
    sizing_mode='stretch_width',
    tools='box_zoom,wheel_zoom,pan,reset',
    # A finger that moves over a chart moves the page, until a tool is chosen.
    active_drag=None,
    active_scroll=None,
    toolbar_location='above',
    x_axis_label=x_label,
    y_axis_label=y_label,
    background_fill_color=None,
    border_fill_color=None,
    outline_line_color=None,
    **options,
  )
  chart.toolbar.logo = None
  chart.grid.grid_line_color = _GRID
  chart.axis.axis_label_text_color = _TEXT
  chart.axis.major_label_text_color = _TEXT
  chart.axis.axis_label_text_font_style = 'normal'
  # Rounds, clients and classes are whole numbers.
  chart.xaxis.ticker = _whole_numbers()
  return chart


def _whole_numbers() -> models.AdaptiveTicker:
  return models.AdaptiveTicker(base=10, mantissas=[1, 2, 5], min_interval=1)


def heat_map(
  shown: pd.DataFrame,
  counts: pd.DataFrame,
  labels: tuple[str, str],
  most: float = 1,
) -> plotting.figure:
  """Draws what is shown of each row and column, `most` in the darkest colour.

  It is grey where that is not known. The box says the counts, of examples;
  `labels` are those of columns and of rows.
  """
  height, width = counts.shape
  chart = _chart(
    *labels,
    x_range=models.Range1d(-0.5, width - 0.5),
    # The first row is at the top, as in a table.
    y_range=models.Range1d(height - 0.5, -0.5),
  )
  colours = models.LinearColorMapper(
    palette=_PALETTE, low=0, high=max(float(most), 1e-9), nan_color=_UNKNOWN
  )
  image = chart.image(
    'shown',
    x=-0.5,
    y=-0.5,
    dw=width,
    dh=height,
    color_mapper=colours,
    source=models.ColumnDataSource(
      {
        'shown': [shown.to_numpy(np.float32)],
        'examples': [counts.to_numpy(np.float32)],
      }
    ),
  )
  bar = models.ColorBar(color_mapper=colours, width=12, padding=4)
  bar.major_label_text_color = _TEXT
  bar.background_fill_color = None
  chart.add_layout(bar, 'right')
  chart.grid.visible = False
  rows, columns = list(map(str, counts.index)), list(map(str, counts.columns))
  _name_ticks(chart.xaxis[0], columns)
  _name_ticks(chart.yaxis[0], rows)
  _add_box(
    chart,
    [image],
    {
      labels[1]: '$y{custom}',
      labels[0]: '$x{custom}',
      'examples': '@examples{0.[0]}',
    },
    # They give the name of a place along an axis.
    {
      place: models.CustomJSHover(
        args={'names': names}, code='return names[Math.round(value)] ?? ""'
      )
      for place, names in (('$x', columns), ('$y', rows))
    },
  )
  return chart


def _name_ticks(axis, names: Sequence[str]) -> None:
  if len(names) > _MOST_NAMES:
    axis.ticker = _whole_numbers()
    return
  axis.ticker = models.FixedTicker(ticks=list(range(len(names))))
  axis.major_label_overrides = {
    place: models.PlainText(
      text=name
      if len(name) <= _LONGEST_NAME
      else f'{name[: _LONGEST_NAME - 3]}...'
    )
    for place, name in enumerate(names)
  }
  if axis.axis_label.endswith('class') and any(len(name) > 2 for name in names):
    axis.major_label_orientation = 0.8
