"""The user's own images: `train.npz`, `test.npz`, maybe `validation`, `server`.

Each file has `images`, `uint8` or floats from 0 to 1, `[N, H, W]` or `[N, H, W,
C]`, and what `datasets.sources.own.arrays` reads beside them.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.files import image_files, npz_files
from datasets.files.npz_files import NpzFile
from datasets.sources.own import arrays
from datasets.sources.own import rows as rows_lib
from datasets.sources.own.rows import TRAIN
from datasets.sources.source import Source

# Pixels of what was divided by 255, or by 16 and more.
_DARK = 16


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the files; a training image may lack a label (`UNKNOWN`)."""
  labelled, images, fields = ARRAYS.read(data_dir)
  path = ARRAYS.files(data_dir)[TRAIN].path
  return source_of(labelled, 'npz files', data_dir, path, images, **fields)


def source_of(
  labelled: rows_lib.Labelled, kind, data_dir, path: str, images, **fields
) -> Source:
  """As `Labelled.source`; what is learnt of colours is what clients see."""
  mean, stddev = npz_files.moments(images[TRAIN], path)
  background = npz_files.background(images[TRAIN])
  fields |= {'mean': mean, 'stddev': stddev, 'background': background}
  return labelled.source(kind, data_dir, images, **fields)


def _check(file: NpzFile, shape: tuple[int, ...], dtype: np.dtype) -> None:
  if dtype != np.uint8 and (dtype.kind != 'f' or dtype.itemsize > 8):
    raise file.wrong(
      'images', dtype, 'give uint8 from 0 to 255, or floats from 0 to 1'
    )
  if len(shape) not in (3, 4):
    raise file.wrong('images', shape, 'the shape is [N, H, W] or [N, H, W, C]')
  if min(shape) < 1:
    raise file.wrong('images', shape, 'no dimension may be 0')
  if len(shape) == 4 and shape[3] not in (1, 3):
    raise file.wrong('images', shape, 'channels come last, 1 or 3 of them')


def images_of(path: str, stored: np.ndarray) -> np.ndarray:
  """Returns images as `uint8 [N, H, W, C]`; refuses pixels of another scale."""
  images = npz_files.as_bytes(path, stored)
  if images.ndim == 3:
    images = images[..., np.newaxis]
  if images.max() == 1:
    raise npz_files.wrong(
      path,
      'images',
      'the pixels 0 and 1 alone, where 255 is white',
      'multiply them by 255, or store what was divided by 255 as float32'
      if stored.dtype == np.uint8
      else 'these were divided twice, divide by 255 once',
    )
  return np.ascontiguousarray(images)


ARRAYS = arrays.Arrays('npz', 'images', 'image', _check, images_of)


def unusual(images: np.ndarray) -> list[str]:
  """Says of each image to classify whether its pixels look divided."""
  tops = images.reshape(len(images), -1).max(axis=1)
  return [
    f'no pixel is above {top}, where 255 is white' if 0 < top < _DARK else ''
    for top in tops.tolist()
  ]


def decode(
  path: str, input_shape: tuple[int, ...], preprocessing: Mapping[str, Any]
) -> tuple[np.ndarray, list[str]]:
  """Reads images of the size that the model takes; see `SourceSpec.decode`."""
  del preprocessing
  ending = pathlib.Path(path).suffix.lower()

  def check_shape(shape):
    if tuple(shape) != tuple(input_shape):
      raise ValueError(
        f'{path}: found images of {list(shape)} (height, width, channels), and '
        f'the model takes {list(input_shape)}; resize or convert them as those '
        'that it was trained on.'
      )

  def check(headers):
    ARRAYS.check_headers(file, headers)
    # Without an axis of channels, images are grey.
    check_shape((*headers['images'][0][1:], 1)[:3])

  if ending in image_files.ENDINGS:
    images = image_files.unscaled(pathlib.Path(path), check_shape)[np.newaxis]
    return images, unusual(images)
  if ending == '.npz':
    file = NpzFile(path, arrays.REMEDY)
    npz_files.check_sizes([file])
    images = file.read(('images',), check, ignores_others=True)['images']
  else:
    file = NpzFile(path, 'write it with np.save')
    images = file.read_single('images', check)
  images = npz_files.as_bytes(path, images).reshape(-1, *input_shape)
  return np.ascontiguousarray(images), unusual(images)


SPEC = ARRAYS.spec(
  description='your own <data_dir>/train.npz and test.npz, maybe '
  'validation.npz and server.npz',
  builder=load,
  endings=('.npz', '.npy', *image_files.ENDINGS),
  decode=decode,
)
