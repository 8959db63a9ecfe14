"""Pictures of gains: what is drawn, and where names stand."""

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from experiments.reporting import gain_figures

_CURVES = pd.DataFrame(
  {
    'run': ['ours'] * 4 + ['alone'] * 4,
    'seed': [0, 0, 1, 1] * 2,
    'round': [10, 20] * 4,
    'accuracy': [0.5, 0.9, 0.6, 0.8, 0.5, 0.6, 0.5, 0.7],
  }
)


def test_colours_of_the_kinds_are_in_the_picture(tmp_path):
  path = tmp_path / 'picture.png'
  lines = (
    gain_figures.Line('ours', 'with clients'),
    gain_figures.Line('alone', 'alone', 'bound'),
  )
  gain_figures.draw(_CURVES, lines, path, lowest=0.4)
  pixels = matplotlib.image.imread(path)[..., :3].reshape(-1, 3)
  # Blue, #1f77b4, and the grey of bounds.
  for colour in ((0x1F / 255, 0x77 / 255, 0xB4 / 255), (0.45, 0.45, 0.45)):
    assert (np.abs(pixels - colour).max(axis=1) < 0.01).sum() > 50


def test_a_missing_run_is_named(tmp_path):
  line = gain_figures.Line('other', 'other')
  with pytest.raises(ValueError, match='The run other is not among'):
    gain_figures.draw(_CURVES, (line,), tmp_path / 'p.png', lowest=0)
  assert not list(tmp_path.iterdir())


def test_names_keep_a_distance():
  placed = gain_figures._apart([0.9, 0.1, 0.905, 0.89], 0.05)
  assert placed == pytest.approx([0.94, 0.1, 0.99, 0.89])
