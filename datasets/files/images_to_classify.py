"""Reads a user's images to classify: npz, npy, PNG and JPEG files.

The files are not trusted. Their form is checked before their pixels are read,
and nothing is unpickled.
"""

import os

import numpy as np
from PIL import Image

from datasets.files import image_files, npz_files

ENDINGS = ('.npz', '.npy', '.png', '.jpg', '.jpeg')
# What an npz file may have beside its images: that of training and test files.
_BESIDE = ('labels', 'client_ids', 'client_id', 'set_id')
# What these modes become loses nothing.
_PLAIN_MODES = {'1': 'L', 'P': 'RGB'}
_CHANNELS = {'L': 1, 'RGB': 3}


def read(path: str, input_shape: tuple[int, int, int]) -> np.ndarray:
  """Reads the images of a file.

  Args:
    path: A file with one of `ENDINGS`. An npz file has the array `images`, an
      npy file is that array; it is `[N, H, W]`, which are grey, or `[N, H, W,
      C]`, of `uint8` or of floats from 0 to 1. The others hold one picture of 8
      bits per channel, grey or RGB.
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
    images = _read_picture(path, input_shape)[np.newaxis]
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
  try:
    # It takes no memory before its header is checked.
    images = np.lib.format.open_memmap(path, mode='r')
  except (OSError, ValueError, EOFError) as error:
    raise ValueError(
      f'{path}: damaged or unreadable ({error}); write it with np.save.'
    ) from error
  _check_header(path, images.shape, images.dtype, input_shape)
  return images


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


def _read_picture(path, input_shape):
  try:
    # Opened lazily, since a file may be larger than any picture.
    with Image.open(path, formats=('PNG', 'JPEG')) as picture:
      _check_picture(path, picture)
      mode = _PLAIN_MODES.get(picture.mode, picture.mode)
      width, height = picture.size
      # Before its pixels are decoded, which may be very many.
      _check_shape(path, (height, width, _CHANNELS[mode]), input_shape)
      return np.asarray(picture.convert(mode))
  except (OSError, SyntaxError, Image.DecompressionBombError) as error:
    raise ValueError(
      f'{path}: no complete PNG or JPEG file; replace it or leave it out.'
    ) from error


def _check_picture(path, picture) -> None:
  """Checks that a picture has 8 bits per channel, and is grey or RGB."""
  mode = _PLAIN_MODES.get(picture.mode, picture.mode)
  is_deep = picture.format == 'PNG' and image_files.bits_of_png(path) > 8
  if mode not in _CHANNELS or is_deep or 'transparency' in picture.info:
    found = '16 bits per channel' if is_deep else f'the mode {picture.mode}'
    raise ValueError(
      f'{path}: found {found}; convert it to grey or RGB of 8 bits per '
      'channel, without transparency.'
    )


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
