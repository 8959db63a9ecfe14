"""The charts of a page hold the figures that they were given."""

import numpy as np
import pandas as pd
import pytest
from bokeh import models

from experiments.reporting import page_charts


def sources(chart, kind):
  """Returns the data of the glyphs of a kind."""
  return [
    {k: np.asarray(v).tolist() for k, v in r.data_source.data.items()}
    for r in chart.renderers
    if isinstance(r.glyph, kind)
  ]


def test_lines_are_the_bands_and_phases_are_shaded():
  names = ['mean', 'low', 'high']
  bands = {
    'a': pd.DataFrame(columns=names, dtype=float),
    'b': pd.DataFrame([[0.25, 0.125, 0.5], [np.inf, 1, 1]], [2, 4], names),
  }
  phases = [('warm-up', 3), ('pre-training', 7)]
  chart = page_charts.curves(bands, 'test loss', phases)
  first, second = sources(chart, models.Line)
  assert first == {'round': [], 'mean': [], 'low': [], 'high': []}
  # What is not finite would stretch the axis without end.
  assert second == {'round': [2], 'mean': [0.25], 'low': [0.125], 'high': [0.5]}
  shaded = chart.select(models.BoxAnnotation)
  ends = {(box.left, box.right) for box in shaded if box.line_color is None}
  assert {(0, 3), (3, 7)} <= ends
  assert (chart.y_range.start, chart.y_range.end) == (0, 0.5)
  # One box for all systems, for pointers and for fingers.
  for kind in (models.HoverTool, models.TapTool):
    (tool,) = chart.select(kind)
    (strips,) = tool.renderers
    data = strips.data_source.data
    assert (data['left'], data['right'], data['round']) == (1.5, 2.5, 2)
  (hover,) = chart.select(models.HoverTool)
  assert [name for name, _ in hover.tooltips] == ['round', 'a', 'b']


def test_an_axis_says_where_it_begins_if_not_at_zero():
  chart = page_charts.curves({}, 'test accuracy')
  assert (chart.y_range.start, chart.y_range.end) == (0, 1)
  assert chart.yaxis[0].axis_label == 'test accuracy'
  assert chart.xaxis[0].ticker.min_interval == 1
  names = ['mean', 'low', 'high']
  band = pd.DataFrame([[0.9, 0.85, 0.95], [0.95, 0.92, 0.98]], [1, 5], names)
  chart = page_charts.curves({'a': band}, 'test accuracy')
  assert (chart.y_range.start, chart.y_range.end) == pytest.approx((0.825, 1))
  assert chart.yaxis[0].axis_label == 'test accuracy, axis from 0.825'
  (hover,) = chart.select(models.HoverTool)
  edges = hover.renderers[0].data_source.data
  assert edges['left'].tolist() == [0.5, 3]
  assert edges['right'].tolist() == [3, 5.5]


def test_labelled_examples_are_below_the_others():
  chart = page_charts.client_sizes(np.array([2, 0]), np.array([3, 5]))
  below, above = sources(chart, models.VBar)
  expected = {'client': [0, 1], 'labelled': [2, 0], 'unlabelled': [3, 5]}
  assert below == above == expected


def test_colours_are_from_zero_and_a_box_has_the_counts():
  shares = pd.DataFrame([[0.75, 0.25], [np.nan, 0]], ['x', 'y'], ['$$p$$', 'q'])
  counts = pd.DataFrame([[3, 1], [0, 0]], ['x', 'y'], ['$$p$$', 'q'])
  chart = page_charts.heat_map(shares, counts, ('predicted', 'true'), 8)
  (image,) = [r for r in chart.renderers if isinstance(r.glyph, models.Image)]
  mapper = image.glyph.color_mapper
  assert (mapper.low, mapper.high) == (0, 8)
  (drawn,) = sources(chart, models.Image)
  np.testing.assert_equal(drawn['shown'], [shares.to_numpy()])
  assert drawn['examples'] == [[[3, 1], [0, 0]]]
  assert chart.xaxis[0].axis_label == 'predicted'
  assert chart.yaxis[0].axis_label == 'true'
  # A plain string would be read as a formula.
  label = chart.xaxis[0].major_label_overrides[0]
  assert isinstance(label, models.PlainText) and label.text == '$$p$$'


@pytest.mark.parametrize(
  'values, limits, counted',
  [
    # A bin for each of 0, 1, 2, 3.
    ([0, 2, 2, 3], (0, 3), [1, 0, 2, 1]),
    ([0.0, 0.04, 0.06, 1.0], (0.0, 1.0), [2, 1, *[0] * 17, 1]),
  ],
)
def test_clients_are_counted(values, limits, counted):
  systems = {'a': np.array(values), 'b': np.array(values[:1])}
  chart = page_charts.histogram(systems, 'figure', limits)
  first, second, strips = sources(chart, models.Quad)
  assert first['clients'] == strips['clients0'] == counted
  assert sum(second['clients']) == 1
  # Bars of a bin are beside each other, in the strip that has the box.
  np.testing.assert_allclose(first['right'], second['left'])
  assert (np.array(strips['left']) < first['left']).all()
  assert (np.array(second['right']) < strips['right']).all()
