"""Reads a user's files for a classifier: pictures, tables and texts.

What a file becomes is what it would have become in training.
"""

import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.files import image_files, npz_files
from datasets.sources.own import npz, tables, text
from datasets.sources.own.rows import CLIENT
from datasets.sources.own.table import Encoding

_TABLES = ('.csv', '.parquet')
_ARRAYS = ('.npz', '.npy')
_PICTURES = ('.png', '.jpg', '.jpeg')
# Pixels of what was divided by 255, or by 16 and more.
_DARK = 16


def read(
  path: str, input_shape: tuple[int, ...], preprocessing: Mapping[str, Any]
) -> tuple[np.ndarray, list[str]]:
  """Reads the examples of a file, in the `input_shape` of an example.

  The `kind` of `preprocessing` says which: a table or texts, without labels if
  need be; else an npz file with the array `images`, an npy file of it, or a PNG
  or JPEG file, of any size where `kind` is 'pictures'.

  Returns:
    The examples: images `uint8 [N, H, W, C]`, vectors `float32 [N, F]`, or
    strings `[N]`. And for each a text that says what the training examples did
    not have, empty where nothing is unusual.
  """
  kind = preprocessing.get('kind')
  ending = pathlib.Path(path).suffix.lower()
  endings = _TABLES if kind in ('table', 'text') else (*_ARRAYS, *_PICTURES)
  if ending not in endings:
    listed = (' or ' if endings == _TABLES else ', ').join(endings)
    raise ValueError(
      f'{path} has an unknown ending: give files that end in {listed}.'
    )
  if not pathlib.Path(path).is_file():
    raise ValueError(f'{path}: no such file; give the path of one.')
  if endings == _TABLES:
    return _read_rows(path, kind, preprocessing)
  if kind == 'pictures' and ending in _PICTURES:
    side, _, channels = input_shape
    images = image_files.read_squares([pathlib.Path(path)], side, channels)
  else:
    images = _read_images(path, ending, input_shape)
  tops = images.reshape(len(images), -1).max(axis=1)
  return images, [
    f'no pixel is above {top}, where 255 is white' if 0 < top < _DARK else ''
    for top in tops.tolist()
  ]


def _read_rows(path, kind, preprocessing):
  table = tables.read(path)
  if kind == 'table':
    encoding = Encoding(
      *(preprocessing[name] for name in ('numbers', 'words', 'ranges'))
    )
    examples = encoding.encode(table, (tables.LABEL, CLIENT))
    return examples, ['; '.join(one) for one in encoding.unusual(table)]
  texts, known = text.texts_of(table), set(preprocessing['words'])
  said = []
  for words in text.split(texts):
    unknown = sum(word not in known for word in words)
    said.append(
      f'{unknown} of {len(words)} words are unknown'
      if 2 * unknown > len(words)
      else ''
    )
  return np.array(texts, object), said


def _read_images(path, ending, input_shape) -> np.ndarray:
  """Returns images of the size that the model takes, `uint8 [N, H, W, C]`."""
  check_shape = functools.partial(_check_shape, path, input_shape)
  if ending not in ('.npz', '.npy'):
    return image_files.unscaled(pathlib.Path(path), check_shape)[np.newaxis]
  writer = 'np.savez' if ending == '.npz' else 'np.save'
  file = npz_files.NpzFile(path, f'write it with {writer}')

  def check(headers):
    npz.check_headers(file, headers)
    # Without an axis of channels, images are grey.
    check_shape((*headers['images'][0][1:], 1)[:3])

  if ending == '.npz':
    npz_files.check_sizes([file])
    images = file.read(('images',), check, ignores_others=True)['images']
  else:
    images = file.read_single('images', check)
  images = npz_files.as_bytes(path, images)
  return np.ascontiguousarray(images.reshape(-1, *input_shape))


def _check_shape(path, input_shape, shape) -> None:
  if tuple(shape) != tuple(input_shape):
    raise ValueError(
      f'{path}: found images of {list(shape)} (height, width, channels), and '
      f'the model takes {list(input_shape)}; resize or convert them as those '
      'that it was trained on.'
    )
