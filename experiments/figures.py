"""Draws the designed pictures of README, docs and results from their curves.

python -m experiments.figures
"""

import pathlib

import pandas as pd

from experiments.config import command_line
from experiments.reporting import gain_figures

_ROOT = pathlib.Path(__file__).parents[1]
_RESULTS = _ROOT / 'results'
_LINE = gain_figures.Line

# The curves, what is drawn of them, where the axis begins, and the picture.
_PICTURES = (
  (
    'gain_writers_curves.csv',
    (
      _LINE('ten_writers_supervised', 'all labels at the clients', 'bound'),
      _LINE('ten_writers_defaults', '100 labels and unlabelled clients'),
      _LINE('ten_writers_server_only', 'the 100 labels alone', 'bound'),
    ),
    0.7,
    _ROOT / 'docs' / '_static' / 'gain_writers.png',
  ),
  (
    'gain_balanced_curves.csv',
    (
      _LINE('robust_s2', 'grouping_robust, S = 2'),
      _LINE('server_only', 'the server alone', 'bound'),
      _LINE('grouping_s2', 'grouping, S = 2', 'other'),
    ),
    0.0,
    _RESULTS / 'gain_balanced.png',
  ),
)


def main() -> int:
  """Draws all pictures.

  Returns:
    The exit code.
  """
  for curves, lines, lowest, picture in _PICTURES:
    gain_figures.draw(
      pd.read_csv(_RESULTS / curves), lines, picture, lowest=lowest
    )
    print(f'{picture} is drawn.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
