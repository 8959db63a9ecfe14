"""The picture of what faults cost."""

import numpy as np
import pandas as pd

from experiments.reporting import fault_figures


def test_points_crosses_and_the_bound(tmp_path, pictures):
  """A run is a point at its mean; one that is missing is a cross."""
  runs = [
    f'{method}_{fault}{ending}'
    for method in fault_figures.METHODS
    for fault in fault_figures.FAULTS
    for ending, *_ in fault_figures.AGGREGATORS.values()
  ]
  values = np.linspace(0.1, 0.9, len(runs) + 1)
  last = pd.DataFrame(
    {0: values, 1: values + 0.02}, index=[*runs, 'server_only']
  ).drop(index='fedul_exploding30')
  fault_figures.draw(last, tmp_path / 'faults.png')
  [picture] = pictures
  grouping, _, fedul = picture.axes
  assert [label.get_text() for label in grouping.get_yticklabels()] == list(
    fault_figures.FAULTS.values()
  )
  marked = lambda axes, mark: [x for x in axes.lines if x.get_marker() == mark]
  assert [len(marked(axes, 'x')) for axes in picture.axes] == [0, 0, 1]
  points = marked(fedul, 's')
  expected = last.mean(axis=1)
  faults = ('none', 'exploding30', 'labels30', 'signs30', 'stale30')
  assert [line.get_xdata()[0] for line in points] == [
    expected[f'fedul_{fault}_robust'] for fault in faults
  ]
  bound = [line for line in grouping.lines if line.get_ydata()[-1] == 1]
  assert bound[-1].get_xdata()[0] == expected['server_only']
