"""The confusion matrix as a table that reads back, and as a picture."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import axes
from PIL import Image

from experiments.artifacts import confusion


def counts_of(names):
  counts = np.diag(np.arange(len(names)))
  counts[-1, 0] = counts[-1, -1]
  return pd.DataFrame(counts, names, names)


@pytest.fixture
def images(monkeypatch):
  """What is drawn as an image, and how."""
  drawn = []
  imshow = axes.Axes.imshow

  def record(self, values, **arguments):
    drawn.append((values, arguments['vmin'], arguments['vmax']))
    return imshow(self, values, **arguments)

  monkeypatch.setattr(axes.Axes, 'imshow', record)
  return drawn


def test_table_and_picture(tmp_path, images):
  # A formula that cannot be drawn, and a name longer than the picture.
  counts = counts_of(['=1+1', 'well, "ill"', r'$\frac$', 'long ' * 40])
  confusion.write(counts, tmp_path, 'title')
  read = pd.read_csv(tmp_path / confusion.TABLE, index_col=0)
  # What a spreadsheet would run is text.
  safe = {'=1+1': "'=1+1"}
  pd.testing.assert_frame_equal(
    read, counts.rename(index=safe, columns=safe), check_names=False
  )
  ((values, low, high),) = images
  # Of the first class there is no example.
  expected = [[0] * 4, [0, 1, 0, 0], [0, 0, 1, 0], [0.5, 0, 0, 0.5]]
  assert (values.tolist(), low, high) == (expected, 0, 1)
  with Image.open(tmp_path / confusion.PICTURE) as picture:
    assert len(np.unique(np.asarray(picture.convert('L')))) > 10


@pytest.mark.parametrize('number, is_drawn', [(50, True), (51, False)])
def test_many_classes_have_a_table_alone(number, is_drawn, tmp_path):
  counts = counts_of([f'class {place}' for place in range(number)])
  confusion.write(counts, tmp_path, 'title')
  assert (tmp_path / confusion.TABLE).exists()
  assert (tmp_path / confusion.PICTURE).exists() == is_drawn
