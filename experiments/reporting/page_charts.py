"""The interactive charts of a page of runs, drawn with bokeh.

Texts of users stand in a chart only where the browser takes them as plain text:
in hover boxes, which bokeh escapes, and as `PlainText` along an axis. Bokeh
would read a formula out of any other string, and fetch what sets formulas.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from bokeh import embed, models, palettes, plotting, resources

# Of Okabe and Ito: people with any kind of colour vision tell them apart.
COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9')
# With the colours, for prints in black and white; CSS has these, too.
DASHES = ('solid', 'dashed', 'dotted', 'dashed', 'dotted', 'solid')
_TEXT, _GRID = '#444444', '#dddddd'
# Light is none, dark is most.
_PALETTE = tuple(reversed(palettes.Blues256))
_UNKNOWN = '#c8c8c8'
# More names along an axis cannot be read.
_MOST_NAMES = 20
_LONGEST_NAME = 14
_BINS = 20


def script_and_parts(
  charts: Mapping[str, plotting.figure],
) -> tuple[str, Mapping[str, str]]:
  """Returns the script of all charts, and the element for each, by its name."""
  return embed.components(dict(charts))


def library() -> str:
  """Returns the script elements of bokeh itself, which load nothing."""
  return resources.Resources(mode='inline', components=['bokeh']).render_js()


def curves(
  bands: Mapping[str, pd.DataFrame],
  label: str,
  phases: Sequence[tuple[str, int]] = (),
  is_share: bool = True,
) -> plotting.figure:
  """Draws a line in a band (`pictures.band_of`) for each system, over rounds.

  `phases` says what the first rounds are for, and how many they are, the
  shortest first; they are shaded. Shares are in [0, 1].
  """
  chart = _chart('round', label)
  if is_share:
    chart.y_range = models.Range1d(0, 1, bounds=(-0.5, 1.5))
  else:
    chart.y_range.start = 0
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
  lines = []
  for place, (name, drawn) in enumerate(bands.items()):
    finite = drawn[np.isfinite(drawn).all(axis='columns')]
    rounds = finite.index.astype(np.int32).rename('round')
    source = models.ColumnDataSource(
      finite.astype(np.float32).set_index(rounds)
    )
    look = {'color': COLOURS[place]}
    chart.varea('round', 'low', 'high', source=source, alpha=0.2, **look)
    line = chart.line(
      *('round', 'mean'),
      source=source,
      line_width=2,
      line_dash=DASHES[place],
      name=name,
      **look,
    )
    lines.append(line)
    if len(finite) == 1:  # A line of one point cannot be seen.
      lines.append(
        chart.scatter('round', 'mean', source=source, name=name, **look)
      )
  _add_hover_box(
    chart,
    lines,
    system='$name',
    round='@round',
    mean='@mean{0.0000}',
    seeds='@low{0.0000} to @high{0.0000}',
  )
  return chart


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
    color=[COLOURS[1], COLOURS[5]],
    line_color=None,
  )
  chart.y_range.start = 0
  _add_hover_box(
    chart,
    bars,
    client='@client',
    labelled='@labelled',
    unlabelled='@unlabelled',
  )
  return chart


def counts_by_class(counts: pd.DataFrame) -> plotting.figure:
  """Draws the examples of each client (a row) and class as a heat map."""
  most = counts.to_numpy().max()
  return _heat_map(counts, counts, ('class', 'client'), most)


def confusion(counts: pd.DataFrame) -> plotting.figure:
  """Draws the shares of predicted classes (columns) in each true class."""
  shares = counts.div(counts.sum(axis='columns').clip(lower=1), axis='index')
  return _heat_map(shares, counts, ('predicted class', 'true class'), 1)


def shares_by_round(
  shares: pd.DataFrame, counts: pd.DataFrame
) -> plotting.figure:
  """Draws a share of so many examples of each class (a row) and round."""
  return _heat_map(shares, counts, ('round', 'class'), 1)


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
  steps = []
  for place, (name, figures) in enumerate(values.items()):
    heights, _ = np.histogram(figures, edges)
    source = models.ColumnDataSource(
      {
        'left': edges[:-1],
        'right': edges[1:],
        'clients': heights.astype(np.int32),
      }
    )
    steps.append(
      chart.quad(
        left='left',
        right='right',
        top='clients',
        bottom=0,
        source=source,
        fill_color=COLOURS[place],
        fill_alpha=0.25,
        line_color=COLOURS[place],
        line_dash=DASHES[place],
        name=name,
      )
    )
  chart.y_range.start = 0
  _add_hover_box(
    chart,
    steps,
    **{
      'system': '$name',
      label: '@left{0.[00]} to @right{0.[00]}',
      'clients': '@clients',
    },
  )
  return chart


def _add_hover_box(chart, renderers, **lines: str) -> None:
  """Adds a box that says these lines at a pointer on what is drawn."""
  tooltips = list(lines.items())
  chart.add_tools(models.HoverTool(renderers=renderers, tooltips=tooltips))


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


def _heat_map(shown, counts, labels, most) -> plotting.figure:
  """Draws what is shown of each row and column, `most` in the darkest colour.

  It is grey where that is not known. The hover box says the counts.
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
  chart.image(
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
  chart.add_tools(
    models.HoverTool(
      tooltips=[
        (labels[1], '$y{custom}'),
        (labels[0], '$x{custom}'),
        ('examples', '@examples{0.[0]}'),
      ],
      # They give the name of a place along an axis.
      formatters={
        place: models.CustomJSHover(
          args={'names': names}, code='return names[Math.round(value)] ?? ""'
        )
        for place, names in (('$x', columns), ('$y', rows))
      },
    )
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
