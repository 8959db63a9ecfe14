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
  """Returns HTML of charts.

  Args:
    charts: The charts by name.

  Returns:
    The script element of all charts, and the element that holds each, by name.
  """
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
  """Draws a line in a band for each system, over rounds.

  Args:
    bands: `mean`, `low` and `high` by round (`mean_curves.band`), by the name
      of the system; in the order of `COLOURS`, of which there are as many.
    label: Name of the y axis.
    phases: What the first rounds are for, and how many they are, the shortest
      first; they are shaded.
    is_share: Whether values are in [0, 1].
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
    source = models.ColumnDataSource(
      {
        'round': finite.index.to_numpy(np.int32),
        **{k: finite[k].to_numpy(np.float32) for k in ('mean', 'low', 'high')},
      },
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
  chart.add_tools(
    models.HoverTool(
      renderers=lines,
      tooltips=[
        ('system', '$name'),
        ('round', '@round'),
        ('mean', '@mean{0.0000}'),
        ('seeds', '@low{0.0000} to @high{0.0000}'),
      ],
    )
  )
  return chart


def client_sizes(labelled: np.ndarray, unlabelled: np.ndarray):
  """Draws the examples of each client, labelled ones below unlabelled ones.

  Args:
    labelled: `int [K]`, examples whose label the client has.
    unlabelled: `int [K]`, the others.
  """
  chart = _chart('client', 'examples')
  clients = np.arange(len(labelled), dtype=np.int32)
  source = models.ColumnDataSource(
    {
      'client': clients,
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
  chart.add_tools(
    models.HoverTool(
      renderers=bars,
      tooltips=[
        ('client', '@client'),
        ('labelled', '@labelled'),
        ('unlabelled', '@unlabelled'),
      ],
    )
  )
  return chart


def counts_by_class(counts: pd.DataFrame) -> plotting.figure:
  """Draws the examples of each client and class as a heat map from zero.

  Args:
    counts: A row for each client, a column for each class.
  """
  most = counts.to_numpy().max()
  return _heat_map(counts, counts, ('class', 'client'), most)


def confusion(counts: pd.DataFrame) -> plotting.figure:
  """Draws the shares of predicted classes in each true class, in [0, 1].

  Args:
    counts: Numbers of examples; rows are true classes, columns predicted ones.
  """
  shares = counts.div(counts.sum(axis='columns').clip(lower=1), axis='index')
  return _heat_map(shares, counts, ('predicted class', 'true class'), 1)


def shares_by_round(
  shares: pd.DataFrame, counts: pd.DataFrame
) -> plotting.figure:
  """Draws a share of each class and round, in [0, 1]; grey where it is unknown.

  Args:
    shares: A row for each class, a column for each round.
    counts: Of how many examples; of the same shape.
  """
  return _heat_map(shares, counts, ('round', 'class'), 1)


def histogram(
  values: Mapping[str, np.ndarray], label: str, limits: tuple[float, float]
) -> plotting.figure:
  """Draws how many clients have a figure in each of 20 bins, or one per number.

  Args:
    values: A figure for each client, by the name of the system, in the order of
      `COLOURS`.
    label: Name of the figure.
    limits: The least and the greatest value. Between whole numbers with less
      than 20 values, each has a bin of its own.
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
  chart.add_tools(
    models.HoverTool(
      renderers=steps,
      tooltips=[
        ('system', '$name'),
        (label, '@left{0.[00]} to @right{0.[00]}'),
        ('clients', '@clients'),
      ],
    )
  )
  return chart


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
  """Draws one number for each pair of a row and a column, from zero to most.

  Args:
    shown: What gives the colour.
    counts: What the hover box says; of the same shape.
    labels: Names of the x and the y axis.
    most: The number of the darkest colour.
  """
  rows, columns = counts.shape
  chart = _chart(
    *labels,
    x_range=models.Range1d(-0.5, columns - 0.5),
    # The first row is at the top, as in a table.
    y_range=models.Range1d(rows - 0.5, -0.5),
  )
  colours = models.LinearColorMapper(
    palette=_PALETTE, low=0, high=max(float(most), 1e-9), nan_color=_UNKNOWN
  )
  chart.image(
    'shown',
    x=-0.5,
    y=-0.5,
    dw=columns,
    dh=rows,
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
  for axis, names in (
    (chart.xaxis, counts.columns),
    (chart.yaxis, counts.index),
  ):
    _name_ticks(axis[0], names)
  chart.add_tools(
    models.HoverTool(
      tooltips=[
        (labels[1], '$y{custom}'),
        (labels[0], '$x{custom}'),
        ('examples', '@examples{0.[0]}'),
      ],
      formatters={
        '$x': _names_of(counts.columns),
        '$y': _names_of(counts.index),
      },
    )
  )
  return chart


def _name_ticks(axis, names) -> None:
  if len(names) <= _MOST_NAMES:
    axis.ticker = models.FixedTicker(ticks=list(range(len(names))))
    axis.major_label_overrides = {
      place: models.PlainText(text=_short(str(name)))
      for place, name in enumerate(names)
    }
    if axis.axis_label.endswith('class') and any(
      len(str(n)) > 2 for n in names
    ):
      axis.major_label_orientation = 0.8
  else:
    axis.ticker = _whole_numbers()


def _short(name: str) -> str:
  if len(name) <= _LONGEST_NAME:
    return name
  return f'{name[: _LONGEST_NAME - 3]}...'


def _names_of(names) -> models.CustomJSHover:
  """Returns what gives the name of a place along an axis."""
  return models.CustomJSHover(
    args={'names': [str(name) for name in names]},
    code='return names[Math.round(value)] ?? ""',
  )
