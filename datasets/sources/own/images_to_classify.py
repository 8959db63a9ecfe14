"""Reads a user's images to classify: npz, npy, PNG and JPEG files.

The files are not trusted. Their form is checked before their pixels are read,
and nothing is unpickled.
"""

import functools
import os
import pathlib

import numpy as np

from datasets.files import npz_files, square_images
from datasets.sources.own import npz

ENDINGS = ('.npz', '.npy', '.png', '.jpg', '.jpeg')


def read(path: str, input_shape: tuple[int, int, int]) -> np.ndarray:
  """Reads the images of a file.

  Args:
    path: A file with one of `ENDINGS`. An npz file has the array `images`, and
      others are not read; an npy file is that array. It is `[N, H, W]`, which
      are grey, or `[N, H, W, C]`, of `uint8` or of floats from 0 to 1. Other
      files hold one picture of 8 bits per channel, which is turned as its
      camera says.
    input_shape: Height, width and channels that the images must have.

  Returns:
    The images, `uint8 [N, H, W, C]`.

  Raises:
    ValueError: If the file is absent, damaged or of another form.
  """
  ending = os.path.splitext(path)[1].lower()
  if ending not in ENDINGS:
    raise ValueError(
      f'{path} has an unknown ending: give files that end in '
      f'{", ".join(ENDINGS)}.'
    )
  if not os.path.isfile(path):
    raise ValueError(f'{path}: no such file; give the path of one.')
  check_shape = functools.partial(_check_shape, path, input_shape)
  if ending not in ('.npz', '.npy'):
    return square_images.unscaled(pathlib.Path(path), check_shape)[np.newaxis]
  writer = 'np.savez' if ending == '.npz' else 'np.save'
  file = npz_files.NpzFile(path, f'write it with {writer}')

  def check(headers):
    npz.check_headers(file, headers)
    # Without an axis of channels, images are grey.
    check_shape((*headers['images'][0][1:], 1)[:3])

  if ending == '.npz':
    npz_files.check_sizes([file], npz_files.MAX_BYTES)
    images = file.read(('images',), check, ignores_others=True)['images']
  else:
    images = file.read_single('images', check)
  images = npz_files.as_bytes(file, 'images', images)
  return np.ascontiguousarray(images.reshape(-1, *input_shape))


def _check_shape(path, input_shape, shape) -> None:
  if tuple(shape) != tuple(input_shape):
    raise ValueError(
      f'{path}: found images of {list(shape)} (height, width, channels), and '
      f'the model takes {list(input_shape)}; resize or convert them as those '
      'that it was trained on.'
    )
