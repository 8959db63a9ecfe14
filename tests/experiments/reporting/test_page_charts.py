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
    'a': pd.DataFrame([[0.25, 0.125, 0.5], [np.inf, 1, 1]], [2, 4], names),
    'b': pd.DataFrame(columns=names, dtype=float),
  }
  phases = [('warm-up', 3), ('pre-training', 7)]
  chart = page_charts.curves(bands, 'test loss', phases, is_share=False)
  first, second = sources(chart, models.Line)
  # What is not finite would stretch the axis without end.
  assert first == {'round': [2], 'mean': [0.25], 'low': [0.125], 'high': [0.5]}
  assert second == {'round': [], 'mean': [], 'low': [], 'high': []}
  shaded = chart.select(models.BoxAnnotation)
  ends = {(box.left, box.right) for box in shaded if box.line_color is None}
  assert {(0, 3), (3, 7)} <= ends
  assert chart.y_range.start == 0
  (hover,) = chart.select(models.HoverTool)
  assert {r.name for r in hover.renderers} == {'a', 'b'}


def test_shares_reach_from_zero_to_one():
  chart = page_charts.curves({}, 'test accuracy')
  assert (chart.y_range.start, chart.y_range.end) == (0, 1)
  assert chart.xaxis[0].ticker.min_interval == 1


def test_labelled_examples_are_below_the_others():
  chart = page_charts.client_sizes(np.array([2, 0]), np.array([3, 5]))
  below, above = sources(chart, models.VBar)
  expected = {'client': [0, 1], 'labelled': [2, 0], 'unlabelled': [3, 5]}
  assert below == above == expected


def test_colours_of_classes_are_from_zero():
  counts = pd.DataFrame([[4, 8], [5, 6]], ['x', 'y'], ['$$p$$', 'q'])
  chart = page_charts.counts_by_class(counts)
  (image,) = [r for r in chart.renderers if isinstance(r.glyph, models.Image)]
  mapper = image.glyph.color_mapper
  assert (mapper.low, mapper.high) == (0, 8)
  (drawn,) = sources(chart, models.Image)
  assert drawn == {'shown': [[[4, 8], [5, 6]]], 'examples': [[[4, 8], [5, 6]]]}
  # A plain string would be read as a formula.
  label = chart.xaxis[0].major_label_overrides[0]
  assert isinstance(label, models.PlainText) and label.text == '$$p$$'


def test_confusion_is_in_shares_of_a_true_class():
  counts = pd.DataFrame([[3, 1], [0, 0]], list('xy'), list('xy'))
  (drawn,) = sources(page_charts.confusion(counts), models.Image)
  assert drawn['shown'] == [[[0.75, 0.25], [0, 0]]]
  assert drawn['examples'] == [[[3, 1], [0, 0]]]


@pytest.mark.parametrize(
  'values, limits, counted',
  [
    # A bin for each of 0, 1, 2, 3.
    ([0, 2, 2, 3], (0, 3), [1, 0, 2, 1]),
    ([0.0, 0.04, 0.06, 1.0], (0.0, 1.0), [2, 1, *[0] * 17, 1]),
  ],
)
def test_clients_are_counted(values, limits, counted):
  chart = page_charts.histogram({'a': np.array(values)}, 'figure', limits)
  (drawn,) = sources(chart, models.Quad)
  assert drawn['clients'] == counted
  assert sum(drawn['clients']) == len(values)
