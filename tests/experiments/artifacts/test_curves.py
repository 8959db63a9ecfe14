"""The picture of a run, from the very CSV that it writes."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import figure
from PIL import Image

from experiments.artifacts import curves, metric_log
from experiments.measuring import proxy_evaluation
from experiments.reporting import mean_curves


def lines_of(axes):
  """Returns {name: (rounds, values)} of a panel."""
  return {
    line.get_label(): tuple(map(list, line.get_data())) for line in axes.lines
  }


def write(path, rows):
  with metric_log.MetricLog(path, 1) as log:
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
  curves.plot(tmp_path / 'metrics.csv', tmp_path / 'curves.png', 'title')
  assert lines_of(pictures[0].axes[0]) == {
    'test accuracy': ([2, 4], [0.25, 0.5]),
    'mask rate': ([2, 4], [0.0, 0.75]),
    'accuracy of pseudo-labels': ([3], [0.875]),
  }
  with Image.open(tmp_path / 'curves.png') as picture:
    assert picture.size == (840, 480)
    # Not an empty white sheet.
    assert len(np.unique(np.asarray(picture.convert('L')))) > 10


def test_loss_is_beside_accuracy_and_warm_up_is_shaded(tmp_path, pictures):
  row = {'accuracy': 0.5, 'test_loss': 1.5, 'server_loss': 0.25}
  write(tmp_path / 'metrics.csv', [row] * 3)
  phases = [('server warm-up', 2)]
  path = tmp_path / 'curves.png'
  curves.plot(tmp_path / 'metrics.csv', path, 'costs $5 and $_', phases)
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
    assert image.size == (1680, 480)


def draw_curves(path):
  write(path.with_name('metrics.csv'), [{'accuracy': 0.1}])
  curves.plot(path.with_name('metrics.csv'), path, 'title')


def draw_reconstructions(path):
  images = np.zeros((2, 4, 4, 1), np.float32)
  proxy_evaluation.plot(images, images, path, 'title')


def draw_report(path):
  row = {'run': 'a', 'seed': 0, 'round': 1, 'accuracy': 0.5}
  mean_curves.plot(pd.DataFrame([row]), path)


@pytest.mark.parametrize(
  'draw', [draw_curves, draw_reconstructions, draw_report]
)
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
