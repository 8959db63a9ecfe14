"""The picture of a table shows its figures, and no others."""

import numpy as np
import pandas as pd

from experiments.reporting import published_figures

TABLE = pd.DataFrame(
  {
    'name': ['a', 'b', 'c'],
    'measure': ['accuracy', 'rounds_to_half', 'accuracy'],
    'published': [0.8, 30, None],
    'mean': [0.7, 20.0, 0.75],
    'low': [0.65, None, None],
    'high': [0.72, None, None],
    'scale': [1.0, 0.25, None],
    'changed': [None, 'seed', None],
  }
)


def points(axes):
  """Returns what is drawn in a panel: ours, the published, and intervals."""
  bars, published = axes.containers[0], axes.lines[-1]
  segments = bars.lines[2][0].get_segments()
  return (
    list(bars.lines[0].get_xdata()),
    list(published.get_xdata()),
    [tuple(segment[:, 0]) for segment in segments],
  )


def test_a_panel_for_each_measure():
  picture = published_figures.draw(TABLE)
  accuracy, rounds = picture.axes
  ours, published, intervals = points(accuracy)
  assert ours == [0.7, 0.75]
  np.testing.assert_array_equal(published, [0.8, np.nan])
  np.testing.assert_allclose(intervals, [(0.65, 0.72), (0.75, 0.75)])
  assert points(rounds)[:2] == ([20.0], [30.0])
  names = {
    axes.get_xlabel(): [label.get_text() for label in axes.get_yticklabels()]
    for axes in picture.axes
  }
  assert names == {
    'accuracy': ['a', 'c'],
    'rounds_to_half': ['b (0.25 of the rounds, changed)'],
  }


def test_rows_without_a_measure_are_accuracies(tmp_path):
  table = TABLE.drop(columns='measure')
  # Where no row has a value, such as rounds that were never reached.
  table['mean'] = None
  picture = published_figures.draw(table)
  assert len(picture.axes) == 1
  picture.savefig(tmp_path / 'x.png')
