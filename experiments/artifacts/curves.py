"""Curves of a run as PNG, read from its metrics.csv."""

import pandas as pd
from matplotlib import figure

from tff_ssl import whole_files

# Share or accuracy in [0, 1] -> its name in the picture.
_LINES = {
  'accuracy': 'test accuracy',
  'validation_accuracy': 'validation accuracy',
  'mask_rate': 'mask rate',
  'pseudo_label_accuracy': 'accuracy of pseudo-labels',
}


def plot(metrics_csv, path, title: str) -> None:
  """Draws accuracy, mask rate and pseudo-label accuracy over rounds.

  Args:
    metrics_csv: The run's metrics.csv.
    path: The PNG file to write.
    title: Title of the picture.
  """
  table = pd.read_csv(metrics_csv)
  picture = figure.Figure(figsize=(7, 4), layout='constrained')
  axes = picture.subplots()
  for column, label in _LINES.items():
    if column in table and table[column].notna().any():
      line = table[['round', column]].dropna()
      axes.plot(line['round'], line[column], label=label)
  axes.set(xlabel='round', ylabel='share of examples', ylim=(0, 1))
  axes.set_title(title)
  axes.grid(alpha=0.3)
  axes.legend(loc='lower right')
  with whole_files.replacing(path) as file:
    picture.savefig(file, format='png', dpi=120)
