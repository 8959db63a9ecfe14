"""The designed pictures: what is drawn, and the stored files."""

import collections
import pathlib

import numpy as np
import pandas as pd
import pytest
from matplotlib import colors
from PIL import Image

from tools import figures, stored_results

_ROOT = pathlib.Path(__file__).parents[2]
_TABLE = pd.DataFrame(
  {
    'run': ['ours'] * 4 + ['alone'] * 4,
    'seed': [0, 0, 1, 1] * 2,
    'round': [10, 20] * 4,
    'accuracy': [0.5, 0.9, 0.6, 0.8, 0.5, 0.6, 0.5, 0.7],
  }
)
_LINES = (
  figures.Line('ours', 'with clients'),
  figures.Line('alone', 'alone', 'grey'),
)


@pytest.fixture
def own_results(tmp_path, monkeypatch):
  _TABLE.to_csv(tmp_path / 'own_curves.csv', index=False)
  monkeypatch.setattr(stored_results, 'RESULTS', tmp_path)


@pytest.mark.parametrize('name', figures.PICTURES)
def test_a_picture_is_small_and_its_panels_can_be_read(name):
  path = _ROOT / name
  assert path.stat().st_size < 100_000
  with Image.open(path) as picture:
    # At 390 pixels a letter of 9 points is 10 pixels high.
    assert picture.width == 750
  for panel in figures.PICTURES[name]:
    assert len(panel.lines) <= len(figures.MARKERS)
    of_colour = collections.Counter(
      (line.colour, line.is_control)
      for line in panel.lines
      if line.colour != 'grey'
    )
    assert set(of_colour.values()) == {1}
    # Bands of three seeds, unless the picture says otherwise.
    for line in panel.lines:
      own = panel.curves[panel.curves['run'] == line.run]
      seeds = own.dropna(subset='accuracy')['seed'].nunique()
      words = f'{panel.title} {line.label}'
      assert seeds == 3 or 'one seed' in words or line.colour == 'grey', words


def test_a_run_that_two_tables_have_is_that_of_the_first():
  first, second = 'fedlabel_emnist47_2percent', 'fedlabel_emnist47'
  runs = {
    name: figures.Panel(tables).curves.set_index(['run', 'seed', 'round'])
    for name, tables in {
      'first': first,
      'second': second,
      'both': f'{first} {second}',
    }.items()
  }
  assert runs['both'].index.is_unique
  for run, source in (('fedavg', 'first'), ('fedavg_100', 'second')):
    assert runs['both'].loc[run].equals(runs[source].loc[run])


def test_means_and_controls_of_each_panel(own_results):
  """The means of two seeds by hand; a control is dashed in its colour."""
  control = figures.Line('alone', 'control', is_control=True)
  panels = [
    figures.Panel('own', *_LINES[::-1], title='above'),
    figures.Panel('own', _LINES[0], control, lowest=0.2),
  ]
  above, below = figures.draw_curves(panels).axes
  assert above.get_title(loc='left') == 'above'
  # From 0, unless more than half would be empty, or the panel says otherwise.
  assert above.get_ylim() == pytest.approx((0.4, 0.9))
  assert above.get_ylabel() == 'test accuracy, axis from 0.4'
  assert below.get_ylim()[0] == 0.2
  assert below.get_ylabel() == 'test accuracy, axis from 0.2'
  for axes in (above, below):
    lines = {line.get_label(): line for line in axes.lines}
    assert lines['with clients'].get_ydata() == pytest.approx([0.55, 0.85])
    assert lines['with clients'].get_linestyle() == '-'
    assert len({line.get_marker() for line in axes.lines}) == 2
    assert all(tick == int(tick) for tick in axes.get_xticks())
    # As the lines end, the highest first.
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ['with clients', *(set(lines) - {'with clients'})]
  assert [line.get_linestyle() for line in above.lines] == ['-', '-']
  assert below.lines[1].get_linestyle() == '--'
  assert colors.same_color(*(line.get_color() for line in below.lines))


def test_a_missing_run_is_named(own_results):
  panel = figures.Panel('own', figures.Line('other', 'other'))
  with pytest.raises(ValueError, match='The run other is not among'):
    figures.draw_curves([panel])


def test_points_crosses_and_the_bound():
  """A run is a point at its mean; one that is missing is a cross."""
  runs = [
    f'{method}_{fault}{ending}'
    for method in figures.METHODS
    for fault in figures.FAULTS
    for ending, *_ in figures.AGGREGATORS.values()
  ]
  values = np.linspace(0.1, 0.9, len(runs) + 1)
  last = pd.DataFrame(
    {0: values, 1: values + 0.02}, index=[*runs, 'server_only']
  ).drop(index='fedul_exploding30')
  picture = figures.draw_faults(last)
  grouping, _, fedul = picture.axes
  assert [label.get_text() for label in grouping.get_yticklabels()] == list(
    figures.FAULTS.values()
  )
  marked = lambda axes, mark: [x for x in axes.lines if x.get_marker() == mark]
  assert [len(marked(axes, 'x')) for axes in picture.axes] == [0, 0, 1]
  (legend,) = picture.legends
  names = [text.get_text() for text in legend.get_texts()]
  assert {*names} == {*figures.AGGREGATORS, 'server alone', 'the run ends'}
  assert len(names) == 5
  points = marked(fedul, 's')
  expected = last.mean(axis=1)
  faults = ('none', 'exploding30', 'labels30', 'signs30', 'stale30')
  assert [line.get_xdata()[0] for line in points] == [
    expected[f'fedul_{fault}_robust'] for fault in faults
  ]
  bound = [line for line in grouping.lines if line.get_ydata()[-1] == 1]
  assert bound[-1].get_xdata()[0] == expected['server_only']


def test_a_stored_picture_has_a_palette_and_its_colours(own_results, tmp_path):
  path = tmp_path / 'picture.png'
  figures.save(figures.draw_curves([figures.Panel('own', *_LINES)]), path)
  with Image.open(path) as picture:
    assert picture.mode == 'P'
    pixels = np.asarray(picture.convert('RGB')).reshape(-1, 3) / 255
  # The palette moves them a little.
  for name in ('blue', 'grey'):
    distances = np.abs(pixels - colors.to_rgb(figures.COLOURS[name]))
    assert (distances.max(axis=1) < 0.02).sum() > 50
