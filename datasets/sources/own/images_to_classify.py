"""Reads a user's images to classify: npz, npy, PNG and JPEG files.

The files are not trusted. Their form is checked before their pixels are read,
and nothing is unpickled.
"""

import os
import pathlib

import numpy as np

from datasets.files import npz_files, square_images

ENDINGS = ('.npz', '.npy', '.png', '.jpg', '.jpeg')
# What an npz file may have beside its images: that of training and test files.
_BESIDE = ('labels', 'client_ids', 'client_id', 'set_id')


def read(path: str, input_shape: tuple[int, int, int]) -> np.ndarray:
  """Reads the images of a file.

  Args:
    path: A file with one of `ENDINGS`. An npz file has the array `images`, an
      npy file is that array; it is `[N, H, W]`, which are grey, or `[N, H, W,
      C]`, of `uint8` or of floats from 0 to 1. The others hold one picture of 8
      bits per channel, which is turned as its camera says.
    input_shape: Height, width and channels that the images must have.

  Returns:
    The images, `[N, H, W, C]`, `uint8` or `float32`.

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
  if ending == '.npz':
    images = _read_npz(path, input_shape)
  elif ending == '.npy':
    images = _read_npy(path, input_shape)
  else:
    images = square_images.unscaled(
      pathlib.Path(path), lambda shape: _check_shape(path, shape, input_shape)
    )[np.newaxis]
  if images.dtype != np.uint8:
    images = _checked_floats(path, images.astype(np.float32))
  return np.ascontiguousarray(images.reshape(-1, *input_shape))


def _read_npz(path, input_shape):
  file = npz_files.NpzFile(path, 'write it with np.savez')
  npz_files.check_sizes([file], npz_files.MAX_BYTES)
  arrays = file.read(
    ('images',),
    lambda headers: _check_header(path, *headers['images'], input_shape),
    optional=_BESIDE,
  )
  return arrays['images']


def _read_npy(path, input_shape):
  remedy = 'write it with np.save'
  try:
    with open(path, 'rb') as file:
      shape, dtype, declared = npz_files.read_npy_header(file)
  except (OSError, ValueError) as error:
    raise ValueError(
      f'{path}: damaged or unreadable ({error}); {remedy}.'
    ) from error
  found = os.path.getsize(path)
  if dtype.hasobject or declared != found:
    raise ValueError(
      f'{path}: {dtype} {list(shape)} are {declared} bytes, and the file has '
      f'{found}; {remedy}.'
    )
  _check_header(path, shape, dtype, input_shape)
  return np.load(path, allow_pickle=False)


def _check_header(path, shape, dtype, input_shape) -> None:
  """Checks the shape and the type of an array of images."""
  if dtype != np.uint8 and dtype.kind != 'f':
    raise ValueError(
      f'{path}: images: found {dtype}; give uint8 from 0 to 255, or floats '
      'from 0 to 1.'
    )
  if len(shape) not in (3, 4) or not shape[0]:
    raise ValueError(
      f'{path}: images: found the shape {list(shape)}; it is [N, H, W] or '
      '[N, H, W, C], of one image or more.'
    )
  # Without an axis of channels, images are grey.
  _check_shape(path, (*shape[1:], 1)[:3], input_shape)


def _check_shape(path, shape, input_shape) -> None:
  if tuple(shape) != tuple(input_shape):
    raise ValueError(
      f'{path}: found images of {list(shape)} (height, width, channels), and '
      f'the model takes {list(input_shape)}; resize or convert them as those '
      'that it was trained on.'
    )


def _checked_floats(path, images) -> np.ndarray:
  low, high = images.min(), images.max()
  # NaN is neither.
  if not (low >= 0 and high <= 1):
    raise ValueError(
      f'{path}: images: found floats from {low:g} to {high:g}; scale them to 0 '
      'to 1, or give uint8.'
    )
  return images
