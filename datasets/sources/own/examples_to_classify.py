"""Reads a user's files for a classifier: pictures, tables and texts.

What a file becomes is what it would have become in training.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.files import square_images
from datasets.sources.own import (
  features,
  images_to_classify,
  tables,
  text,
  word_numbers,
)
from datasets.sources.own.rows import CLIENT

KINDS = ('pictures', 'table', 'text')
_TABLES = ('.csv', '.parquet')
_PICTURES = ('.png', '.jpg', '.jpeg')
# Pixels of what was divided by 255, or by 16 and more.
_DARK = 16


def read(
  path: str, input_shape: tuple[int, ...], preprocessing: Mapping[str, Any]
) -> tuple[np.ndarray, list[str]]:
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
    The examples; strings `[N]` for 'text'. And what the training examples did
    not have, for each: a text, which is empty where nothing is unusual.

  Raises:
    ValueError: If the file is absent, damaged or of another form.
  """
  kind = preprocessing.get('kind')
  ending = pathlib.Path(path).suffix.lower()
  if kind in ('table', 'text'):
    return _read_rows(path, ending, kind, preprocessing)
  if kind == 'pictures' and ending in _PICTURES:
    images = _read_picture(path, input_shape)
  else:
    images = images_to_classify.read(path, input_shape)
  tops = images.reshape(len(images), -1).max(axis=1)
  return images, [
    f'no pixel is above {top}, where 255 is white' if 0 < top < _DARK else ''
    for top in tops.tolist()
  ]


def _read_rows(path, ending, kind, preprocessing):
  if ending not in _TABLES:
    raise ValueError(
      f'{path} has an unknown ending: give files that end in '
      f'{" or ".join(_TABLES)}, as those that the model was trained on.'
    )
  table = tables.read(path)
  if kind == 'table':
    encoding = features.Encoding(
      *(preprocessing[name] for name in ('numbers', 'words', 'ranges'))
    )
    examples = encoding.encode(table, (tables.LABEL, CLIENT))
    return examples, ['; '.join(one) for one in encoding.unusual(table)]
  texts, known = text.texts_of(table), set(preprocessing['words'])
  said = []
  for words in word_numbers.split(texts):
    unknown = sum(word not in known for word in words)
    said.append(
      f'{unknown} of {len(words)} words are unknown'
      if 2 * unknown > len(words)
      else ''
    )
  return np.array(texts, object), said


def _read_picture(path, input_shape):
  if not pathlib.Path(path).is_file():
    raise ValueError(f'{path}: no such file; give the path of one.')
  side, _, channels = input_shape
  return square_images.read([pathlib.Path(path)], side, channels)
