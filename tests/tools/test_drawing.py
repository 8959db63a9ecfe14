"""The designed pictures: what is drawn, and where names stand."""

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib import colors

from tools import drawing, stored_results

_TABLE = pd.DataFrame(
  {
    'run': ['ours'] * 4 + ['alone'] * 4,
    'seed': [0, 0, 1, 1] * 2,
    'round': [10, 20] * 4,
    'accuracy': [0.5, 0.9, 0.6, 0.8, 0.5, 0.6, 0.5, 0.7],
  }
)
_OWN = ('own',)
_LINES = (
  drawing.Line('ours', 'with clients'),
  drawing.Line('alone', 'alone', 'grey'),
)


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
  _TABLE.to_csv(tmp_path / 'own_curves.csv', index=False)
  monkeypatch.setattr(stored_results, 'RESULTS', tmp_path)


def test_colours_of_the_lines_are_in_the_picture(tmp_path):
  path = tmp_path / 'picture.png'
  drawing.draw_curves([drawing.Panel(_OWN, _LINES, lowest=0.4)], path)
  pixels = matplotlib.image.imread(path)[..., :3].reshape(-1, 3)
  # Blue, #1f77b4, and the grey of bounds. The palette moves them a little.
  for colour in ((0x1F / 255, 0x77 / 255, 0xB4 / 255), (0.45, 0.45, 0.45)):
    assert (np.abs(pixels - colour).max(axis=1) < 0.02).sum() > 50


def test_means_and_controls_of_each_panel(tmp_path, pictures):
  """The means of two seeds by hand; a control is dashed in its colour."""
  control = drawing.Line('alone', 'control', is_control=True)
  panels = [
    drawing.Panel(_OWN, _LINES, title='left'),
    drawing.Panel(_OWN, (_LINES[0], control), lowest=0.2, highest=0.9),
  ]
  drawing.draw_curves(panels, tmp_path / 'p.png')
  [picture] = pictures
  left, right = picture.axes
  assert left.get_title(loc='left') == 'left'
  assert (left.get_ylim(), right.get_ylim()) == ((0, 1), (0.2, 0.9))
  for axes in (left, right):
    ours, other = axes.lines
    assert ours.get_xdata().tolist() == [10, 20]
    assert ours.get_ydata() == pytest.approx([0.55, 0.85])
    assert other.get_ydata() == pytest.approx([0.5, 0.65])
    assert ours.get_linestyle() == '-'
    assert all(tick == int(tick) for tick in axes.get_xticks())
  assert left.lines[1].get_linestyle() == '-'
  assert right.lines[1].get_linestyle() == '--'
  assert colors.same_color(*(line.get_color() for line in right.lines))
  names = [text.get_text() for text in right.texts]
  assert names == ['with clients', 'control']


def test_a_missing_run_is_named(tmp_path):
  panel = drawing.Panel(_OWN, (drawing.Line('other', 'other'),))
  with pytest.raises(ValueError, match='The run other is not among'):
    drawing.draw_curves([panel], tmp_path / 'p.png')
  assert not (tmp_path / 'p.png').exists()


@pytest.mark.parametrize(
  ('heights', 'placed'),
  [
    # The upper three share what they are moved by; one stays.
    ([0.9, 0.1, 0.905, 0.85], [0.885, 0.1, 0.935, 0.835]),
    ([0.99, 1.0], [0.95, 1.0]),
    ([0.01, 0.0], [0.05, 0.0]),
    ([0.3], [0.3]),
  ],
)
def test_names_keep_a_distance(heights, placed):
  assert drawing._apart(heights, 0.05, 0, 1) == pytest.approx(placed)


def test_points_crosses_and_the_bound(tmp_path, pictures):
  """A run is a point at its mean; one that is missing is a cross."""
  runs = [
    f'{method}_{fault}{ending}'
    for method in drawing.METHODS
    for fault in drawing.FAULTS
    for ending, *_ in drawing.AGGREGATORS.values()
  ]
  values = np.linspace(0.1, 0.9, len(runs) + 1)
  last = pd.DataFrame(
    {0: values, 1: values + 0.02}, index=[*runs, 'server_only']
  ).drop(index='fedul_exploding30')
  drawing.draw_faults(last, tmp_path / 'faults.png')
  [picture] = pictures
  grouping, _, fedul = picture.axes
  assert [label.get_text() for label in grouping.get_yticklabels()] == list(
    drawing.FAULTS.values()
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
