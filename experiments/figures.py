"""Draws the designed pictures of README, docs and results from their curves.

python -m experiments.figures
"""

import pathlib

import pandas as pd

from experiments.config import command_line
from experiments.reporting import fault_figures, gain_figures

_ROOT = pathlib.Path(__file__).parents[1]
_RESULTS = _ROOT / 'results'
_LINE = gain_figures.Line
# Evaluations whose mean is drawn, as the table `robustness` reports them.
_LAST = 3

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
  curves = pd.read_csv(_RESULTS / 'robustness_runs_curves.csv')
  last = (
    curves.dropna(subset='accuracy')
    .groupby(['run', 'seed'])['accuracy']
    .apply(lambda values: values.tail(_LAST).mean())
    .unstack()
  )
  fault_figures.draw(last, _RESULTS / 'robustness.png')
  print(f'{_RESULTS / "robustness.png"} is drawn.')
  return 0


if __name__ == '__main__':
  command_line.run(main)
