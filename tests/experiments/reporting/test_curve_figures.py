"""Pictures of gains: what is drawn, and where names stand."""

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib import colors

from experiments.reporting import curve_figures

_CURVES = pd.DataFrame(
  {
    'run': ['ours'] * 4 + ['alone'] * 4,
    'seed': [0, 0, 1, 1] * 2,
    'round': [10, 20] * 4,
    'accuracy': [0.5, 0.9, 0.6, 0.8, 0.5, 0.6, 0.5, 0.7],
  }
)
_LINES = (
  curve_figures.Line('ours', 'with clients'),
  curve_figures.Line('alone', 'alone', 'grey'),
)


def test_colours_of_the_lines_are_in_the_picture(tmp_path):
  path = tmp_path / 'picture.png'
  curve_figures.draw([curve_figures.Panel(_CURVES, _LINES, lowest=0.4)], path)
  pixels = matplotlib.image.imread(path)[..., :3].reshape(-1, 3)
  # Blue, #1f77b4, and the grey of bounds. The palette moves them a little.
  for colour in ((0x1F / 255, 0x77 / 255, 0xB4 / 255), (0.45, 0.45, 0.45)):
    assert (np.abs(pixels - colour).max(axis=1) < 0.02).sum() > 50


def test_means_and_controls_of_each_panel(tmp_path, pictures):
  """The means of two seeds by hand; a control is dashed in its colour."""
  control = curve_figures.Line('alone', 'control', is_control=True)
  panels = [
    curve_figures.Panel(_CURVES, _LINES, title='left'),
    curve_figures.Panel(_CURVES, (_LINES[0], control), lowest=0.2, highest=0.9),
  ]
  curve_figures.draw(panels, tmp_path / 'p.png')
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
  panel = curve_figures.Panel(_CURVES, (curve_figures.Line('other', 'other'),))
  with pytest.raises(ValueError, match='The run other is not among'):
    curve_figures.draw([panel], tmp_path / 'p.png')
  assert not list(tmp_path.iterdir())


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
  assert curve_figures._apart(heights, 0.05, 0, 1) == pytest.approx(placed)
