"""The pictures of a run, from the very numbers that it writes."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import figure
from PIL import Image

from experiments.artifacts import csv_files
from experiments.artifacts import pictures as run_pictures
from experiments.reporting import pictures as report_pictures


def lines_of(axes):
  """Returns {name: (rounds, values)} of a panel."""
  return {
    line.get_label(): tuple(map(list, line.get_data())) for line in axes.lines
  }


def write(path, rows):
  with csv_files.MetricLog(path, 1) as log:
    for number, row in enumerate(rows, start=1):
      log.append(number, row)


def test_lines_are_the_numbers_of_the_csv(tmp_path, pictures):
  write(
    tmp_path / 'metrics.csv',
    [
      {'seconds': 1.0},
      {'accuracy': 0.25, 'mask_rate': 0.0},
      {'mask_rate': float('nan'), 'pseudo_label_accuracy': 0.875},
      {'accuracy': 0.5, 'mask_rate': 0.75},
    ],
  )
  run_pictures.draw_curves(
    tmp_path / 'metrics.csv', tmp_path / 'curves.png', 'title'
  )
  assert lines_of(pictures[0].axes[0]) == {
    'test accuracy': ([2, 4], [0.25, 0.5]),
    'mask rate': ([2, 4], [0.0, 0.75]),
    'accuracy of pseudo-labels': ([3], [0.875]),
  }
  with Image.open(tmp_path / 'curves.png') as picture:
    assert picture.size == (720, 480)
    # Not an empty white sheet.
    assert len(np.unique(np.asarray(picture.convert('L')))) > 10


def test_loss_is_beside_accuracy_and_warm_up_is_shaded(tmp_path, pictures):
  row = {'accuracy': 0.5, 'test_loss': 1.5, 'server_loss': 0.25}
  write(tmp_path / 'metrics.csv', [row] * 3)
  phases = [('server warm-up', 2)]
  path = tmp_path / 'curves.png'
  run_pictures.draw_curves(
    tmp_path / 'metrics.csv', path, 'costs $5 and $_', phases
  )
  (picture,) = pictures
  shares, losses = picture.axes
  # A supervised run has one line.
  assert lines_of(shares) == {'test accuracy': ([1, 2, 3], [0.5] * 3)}
  assert list(lines_of(losses)) == ['test loss', "server's loss"]
  assert lines_of(losses)["server's loss"] == ([1, 2, 3], [0.25] * 3)
  assert losses.get_ylim()[0] == 0
  for panel in (shares, losses):
    (shade,) = panel.patches
    (left, _), (right, _) = (
      shade.get_extents().transformed(panel.transData.inverted()).get_points()
    )
    assert (left, right) == pytest.approx((0, 2))
    assert shade.get_label() == 'server warm-up'
    ticks = panel.get_xticks()
    np.testing.assert_array_equal(ticks, np.round(ticks))
  with Image.open(path) as image:
    assert image.size == (720, 960)


@pytest.mark.parametrize(
  'lowest, highest, limits, name',
  [
    (0.1, 0.9, (0, 1), 'accuracy'),
    # More than half would be empty.
    (0.91, 0.97, (0.9, 0.98), 'accuracy, axis from 0.9'),
    (1, 1, (0.99, 1), 'accuracy, axis from 0.99'),
    (0, 0, (0, 1), 'accuracy'),
    (-1.5, 1, (-2, 1), 'accuracy'),
    # There are no values.
    (np.inf, -np.inf, (0, 1), 'accuracy'),
  ],
)
def test_an_axis_fits_and_says_where_it_begins(lowest, highest, limits, name):
  found = run_pictures.limits(lowest, highest)
  assert found == pytest.approx(limits)
  assert run_pictures.axis_name('accuracy', found[0]) == name


def draw_curves(path):
  write(path.with_name('metrics.csv'), [{'accuracy': 0.1}])
  run_pictures.draw_curves(path.with_name('metrics.csv'), path, 'title')


def draw_report(path):
  row = {'run': 'a', 'seed': 0, 'round': 1, 'accuracy': 0.5}
  picture = report_pictures.of_curves(pd.DataFrame([row]))
  run_pictures.save(picture, path)


@pytest.mark.parametrize('draw', [draw_curves, draw_report])
def test_a_picture_that_is_cut_off_leaves_the_old_one(
  draw, tmp_path, monkeypatch
):
  path = tmp_path / 'picture.png'
  draw(path)
  before = path.read_bytes()
  save = figure.Figure.savefig

  def cut(self, target, **arguments):
    save(self, target, **arguments)
    raise OSError(28, 'No space left on device')

  path.write_bytes(before + b'the picture before')
  monkeypatch.setattr(figure.Figure, 'savefig', cut)
  with pytest.raises(OSError, match='No space left'):
    draw(path)
  assert path.read_bytes() == before + b'the picture before'
  assert not list(tmp_path.glob('.*'))
