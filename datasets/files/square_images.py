"""Decodes pictures of any size and colour to squares of one size.

Pillow turns each picture as its camera says (EXIF), lays it on white where it
is transparent, scales it so that its shorter side has the size asked for, with
antialiasing (the mean of the pixels under a triangle), and cuts the middle
square. Colour profiles are ignored. A JPEG file with several pictures gives the
first.

Pillow is imported when the first file is read.
"""

import contextlib
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from tqdm import tqdm

from datasets.files import image_files

# Change it when the decoding changes: caches are named by it.
DECODING = 'squares-1'

_FORMATS = ('PNG', 'JPEG')
_GREY = ('1', 'L', 'LA')
_COLOUR = ('RGB', 'RGBA', 'P')
_SMALLEST = 4
# The EXIF tag of a picture's orientation, and its values that change height and
# width.
_ORIENTATION, _SIDEWAYS = 0x0112, (5, 6, 7, 8)


def read(
  files: Sequence[pathlib.Path], side: int, channels: int | None = None
) -> np.ndarray:
  """Decodes files.

  Args:
    files: PNG or JPEG files, whatever they are called.
    side: Height and width of the result.
    channels: 1 or 3, if that does not depend on the files.

  Returns:
    `uint8 [N, side, side, C]`: C is 1 if all files hold shades of grey alone,
    else 3. A file with a palette counts as one in colour.

  Raises:
    ValueError: If a file cannot be decoded or used, or too little memory is
      free.
  """
  # All files are looked at first: a wrong one is known in seconds.
  are_grey = [_check_header(file) for file in files]
  if channels is None:
    channels = 1 if all(are_grey) else 3
  mode = 'L' if channels == 1 else 'RGB'
  images = image_files.allocate(len(files), (side, side, channels))
  progress = tqdm(files, desc='Decoding', unit='image', disable=None)
  for index, file in enumerate(progress):
    images[index] = _square(file, mode, side)
  return images


def _check_header(file: pathlib.Path) -> bool:
  """Returns whether a file is grey, after checks that decode no pixel."""
  with _opened(file) as image:
    form, mode, size = image.format, image.mode, image.size
    frames = getattr(image, 'n_frames', 1)
    has_colours = mode != 'P' or image.palette is not None
  if form == 'PNG':
    image_files.check_bits(file)
    if frames > 1:
      raise ValueError(
        f'{file} is an animation of {frames} images: save the one that '
        'matters, or move it away.'
      )
  if not has_colours:
    raise ValueError(f'{file} lacks its palette: save it anew.')
  if mode not in (*_GREY, *_COLOUR):
    raise ValueError(
      f'{file} has colours of the kind {mode}: convert it to grey or RGB.'
    )
  if min(size) < _SMALLEST:
    raise ValueError(
      f'{file} is {size[0]}x{size[1]} pixels, and {_SMALLEST}x{_SMALLEST} are '
      'the least: give a larger one, or move it away.'
    )
  return mode in _GREY


def _square(file: pathlib.Path, mode: str, side: int) -> np.ndarray:
  """Returns the decoded square, `uint8 [side, side, C]`."""
  from PIL import Image

  with _opened(file) as image:
    turned = _upright(image)
    width, height = turned.size
    short = min(width, height)
    left, top = (width - short) // 2, (height - short) // 2
    # Scales and cuts at once: what lies beside the square still counts at its
    # edges, and a long picture is never held at its full scaled length.
    cut = turned.convert(mode).resize(
      (side, side),
      Image.Resampling.BILINEAR,
      box=(left, top, left + short, top + short),
    )
    return np.asarray(cut).reshape(side, side, -1)


def unscaled(
  file: pathlib.Path, check_shape: Callable[[tuple[int, int, int]], None]
) -> np.ndarray:
  """Decodes a file as `read` does, in its own size.

  Args:
    file: A PNG or JPEG file, whatever it is called.
    check_shape: Gets height, width and channels before pixels are decoded, and
      raises `ValueError` where they are wrong.

  Returns:
    `uint8 [H, W, C]`.

  Raises:
    ValueError: If the file cannot be decoded or used.
  """
  is_grey = _check_header(file)
  with _opened(file) as image:
    width, height = image.size
    if image.getexif().get(_ORIENTATION) in _SIDEWAYS:
      width, height = height, width
  shape = (height, width, 1 if is_grey else 3)
  check_shape(shape)
  with _opened(file) as image:
    upright = _upright(image).convert('L' if is_grey else 'RGB')
    return np.asarray(upright).reshape(shape)


def _upright(image):
  """Returns a picture as its camera says, on white where it is transparent."""
  from PIL import Image, ImageOps

  turned = ImageOps.exif_transpose(image)
  if turned.has_transparency_data:
    white = Image.new('RGBA', turned.size, 'white')
    turned = Image.alpha_composite(white, turned.convert('RGBA'))
  return turned


@contextlib.contextmanager
def _opened(file: pathlib.Path) -> Iterator:
  """Opens a picture; whatever Pillow raises in the block is one sentence."""
  from PIL import Image, UnidentifiedImageError

  try:
    with warnings.catch_warnings():
      # Of large and of odd files that are decoded nevertheless.
      warnings.simplefilter('ignore')
      with Image.open(file, formats=_FORMATS) as image:
        yield image
  except UnidentifiedImageError as error:
    raise ValueError(
      f'{file} holds neither a PNG nor a JPEG image: convert it, or move it '
      'away.'
    ) from error
  except (Image.DecompressionBombError, MemoryError) as error:
    raise ValueError(
      f'{file} has too many pixels to be decoded: make it smaller.'
    ) from error
  except Exception as error:  # Damaged files raise errors of many types.
    raise ValueError(
      f'{file} is damaged or cut short ({error}): replace it, or move it away.'
    ) from error
