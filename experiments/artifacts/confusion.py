"""The confusion matrix of a run, as a table and as a picture."""

import pathlib

import numpy as np
import pandas as pd
from matplotlib import figure
from sklearn import metrics

from experiments.artifacts import csv_text
from tff_ssl.common import whole_files

TABLE = 'confusion.csv'
PICTURE = 'confusion.png'
# More names along an axis cannot be read, nor more numbers in the cells.
_MOST_CLASSES = 50
_MOST_NUMBERS = 20
_LONGEST_NAME = 20


def write(counts: pd.DataFrame, folder: pathlib.Path, title: str) -> None:
  """Writes `TABLE` and, for at most 50 classes, `PICTURE`.

  Args:
    counts: Numbers of examples; the index names the true classes, the columns
      the predicted ones.
    folder: The folder to write to.
    title: Title of the picture.

  Raises:
    OSError: If a file cannot be written.
  """
  with whole_files.replacing(folder / TABLE) as file:
    file.write(csv_text.of_table(counts, index_label='true class').encode())
  if len(counts) <= _MOST_CLASSES:
    _draw(counts, folder / PICTURE, title)


def _draw(counts, path, title) -> None:
  """Draws the shares of the predicted classes in each true class."""
  size = 3 + 0.25 * len(counts)
  picture = figure.Figure(figsize=(size + 1, size), layout='constrained')
  axes = picture.subplots()
  shares = counts.to_numpy() / np.maximum(
    counts.to_numpy().sum(axis=1, keepdims=True), 1
  )
  display = metrics.ConfusionMatrixDisplay(
    shares, display_labels=[_tick(name) for name in counts.columns]
  )
  display.plot(
    ax=axes,
    cmap='Blues',
    include_values=len(counts) <= _MOST_NUMBERS,
    values_format='.2f',
    text_kw={'fontsize': 6},
    im_kw={'vmin': 0, 'vmax': 1},
    xticks_rotation='vertical',
  )
  axes.set(xlabel='predicted class', ylabel='true class')
  axes.set_title(title, fontsize='small')
  with whole_files.replacing(path) as file:
    picture.savefig(file, format='png', dpi=120)


def _tick(name: str) -> str:
  if len(name) > _LONGEST_NAME:
    name = f'{name[: _LONGEST_NAME - 3]}...'
  # Between two dollar signs, matplotlib would read a formula.
  return name.replace('$', r'\$')
