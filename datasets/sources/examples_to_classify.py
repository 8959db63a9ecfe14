"""Reads a user's files for a classifier: pictures, tables and texts.

What a file becomes is what it would have become in training.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.files import images_to_classify, square_images
from datasets.sources.tables import table, table_files, text

# Of `Source.preprocessing`.
KINDS = ('pictures', 'table', 'text')
_TABLES = ('.csv', '.parquet')
_PICTURES = ('.png', '.jpg', '.jpeg')


def read(
  path: str, input_shape: tuple[int, ...], preprocessing: Mapping[str, Any]
) -> np.ndarray:
  """Reads the examples of a file.

  Args:
    path: The file. Where `kind` is 'table' or 'text', a CSV or Parquet file
      with the columns of the training file; labels and owners may be missing.
      Else one of images, as `images_to_classify.read` takes it. Where `kind` is
      'pictures', single pictures are scaled and cut as in training, and in any
      size.
    input_shape: The shape of an example.
    preprocessing: `Source.preprocessing`; empty if it is `None`.

  Returns:
    The examples; strings `[N]` for 'text'.

  Raises:
    ValueError: If the file is absent, damaged or of another form.
  """
  kind = preprocessing.get('kind')
  ending = pathlib.Path(path).suffix.lower()
  if kind in ('table', 'text'):
    return _read_rows(path, ending, kind, preprocessing)
  if kind == 'pictures' and ending in _PICTURES:
    return _read_picture(path, input_shape)
  return images_to_classify.read(path, input_shape)


def _read_rows(path, ending, kind, preprocessing):
  if ending not in _TABLES:
    raise ValueError(
      f'{path} has an unknown ending: give files that end in '
      f'{" or ".join(_TABLES)}, as those that the model was trained on.'
    )
  if not pathlib.Path(path).is_file():
    raise ValueError(f'{path}: no such file; give the path of one.')
  encoding = None
  if kind == 'table':
    encoding = table.Encoding(preprocessing['numbers'], preprocessing['words'])
  words = [text.TEXT] if encoding is None else list(encoding.words)
  frame = table_files.read_one(path, dict.fromkeys(words, str))
  if encoding is None:
    return np.array(text.texts_of(frame, path), object)
  return encoding.encode(table.features_of(frame), path)


def _read_picture(path, input_shape):
  if not pathlib.Path(path).is_file():
    raise ValueError(f'{path}: no such file; give the path of one.')
  side, _, channels = input_shape
  images = square_images.read([pathlib.Path(path)], side, channels)
  return images
