"""The picture of a run, from the very CSV that it writes."""

import numpy as np
import pytest
from matplotlib import axes
from PIL import Image

from experiments import curves, metric_log


@pytest.fixture
def drawn(monkeypatch):
  """What is drawn: x and y by label."""
  lines = {}
  plot = axes.Axes.plot

  def record(self, x, y, *, label):
    lines[label] = (list(x), list(y))
    return plot(self, x, y, label=label)

  monkeypatch.setattr(axes.Axes, 'plot', record)
  return lines


def write(path, rows):
  with metric_log.MetricLog(path, 1) as log:
    for number, row in enumerate(rows, start=1):
      log.append(number, row)


def test_lines_are_the_numbers_of_the_csv(tmp_path, drawn):
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
  assert drawn == {
    'test accuracy': ([2, 4], [0.25, 0.5]),
    'mask rate': ([2, 4], [0.0, 0.75]),
    'accuracy of pseudo-labels': ([3], [0.875]),
  }
  with Image.open(tmp_path / 'curves.png') as picture:
    assert picture.size == (840, 480)
    # Not an empty white sheet.
    assert len(np.unique(np.asarray(picture.convert('L')))) > 10


def test_a_supervised_run_has_one_line(tmp_path, drawn):
  write(tmp_path / 'metrics.csv', [{'accuracy': 0.1}, {'accuracy': 0.2}])
  curves.plot(tmp_path / 'metrics.csv', tmp_path / 'curves.png', 'title')
  assert drawn == {'test accuracy': ([1, 2], [0.1, 0.2])}
