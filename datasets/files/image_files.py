"""Folders of images: which files they hold, and how these are decoded.

Hidden files, and those that Windows leaves there, are passed over. All else
that does not belong there is refused by name. Pictures become squares of one
size: turned as the camera says (EXIF), laid on white where they are
transparent, scaled so that the shorter side fits, with antialiasing, and cut to
the middle square. Of several pictures in a JPEG file, the first counts.
"""

import contextlib
import dataclasses
import hashlib
import math
import os
import pathlib
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import psutil
from tqdm import tqdm

# Change it when the decoding changes: caches are named by it.
DECODING = 'squares-1'

ENDINGS = ('.png', '.jpg', '.jpeg')
_FORMATS = ('PNG', 'JPEG')
_GREY = ('1', 'L', 'LA')
_COLOUR = ('RGB', 'RGBA', 'P')
_SMALLEST = 4
# The EXIF tag of a picture's orientation, and its values that change height and
# width.
_ORIENTATION, _SIDEWAYS = 0x0112, (5, 6, 7, 8)
# The position of the bits per channel in a PNG file: after the signature, the
# length and name of the first chunk, the width and the height.
_BIT_DEPTH = 24
_OF_WINDOWS = ('thumbs.db', 'desktop.ini')


@dataclasses.dataclass(frozen=True)
class Layout:
  """How the folders of a data set are arranged, for checks and messages."""

  dataset: str
  holds: str
  kind: str
  suffixes: tuple[str, ...]

  def root(self, data_dir: str | None) -> pathlib.Path:
    """Returns the folder of the data set, which must be given."""
    if data_dir is None:
      raise ValueError(
        f'dataset={self.dataset!r} needs data_dir: the folder that holds '
        f'{self.holds}.'
      )
    return pathlib.Path(data_dir)

  def folders(self, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the folders in a folder by name; refuses files, and none.

    They are sorted by path, and names are compared as people do.
    """
    found = {}
    for path in self._visible(folder):
      if not path.is_dir():
        raise ValueError(
          f'{path} is not a folder, and only folders may be here: move it '
          f'(data_dir must hold {self.holds}).'
        )
      name = unicodedata.normalize('NFC', path.name.strip())
      try:
        name.encode()
      except UnicodeEncodeError as error:
        raise ValueError(
          f'{path} has a name that is not UTF-8: rename the folder.'
        ) from error
      if name in found:
        raise ValueError(
          f'{path} and {found[name]} have one name, but for spaces or the way '
          'in which accents are written: rename one of them.'
        )
      found[name] = path
    if not found:
      raise ValueError(
        f'{folder} is empty: put folders of {self.kind} files into it, or '
        'remove it.'
      )
    return found

  def images(self, folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the images in a folder, sorted; refuses all else, and none."""
    found = self._visible(folder)
    for path in found:
      if path.is_dir():
        raise ValueError(
          f'{path} is one folder too many: put its {self.kind} files into '
          f'{folder} (data_dir must hold {self.holds}).'
        )
      if path.suffix.lower() not in self.suffixes or not path.is_file():
        raise ValueError(
          f'{path} is no {self.kind} file ({", ".join(self.suffixes)}): '
          'convert it, or move it away.'
        )
    if not found:
      raise ValueError(
        f'{folder} is empty: put {self.kind} files into it, or remove it.'
      )
    return found

  def _visible(self, folder: pathlib.Path) -> list[pathlib.Path]:
    if not folder.is_dir():
      raise ValueError(
        f'{folder}: no such folder; data_dir must hold {self.holds}.'
      )
    return visible(folder)


def visible(folder: pathlib.Path) -> list[pathlib.Path]:
  """Returns what a folder holds and a user means to be there, sorted."""
  # Sorted, because file systems list files in different orders.
  return sorted(
    path
    for path in folder.iterdir()
    if not path.name.startswith('.') and path.name.lower() not in _OF_WINDOWS
  )


def digest(
  root: str | os.PathLike, files: Sequence[pathlib.Path], start: bytes
) -> str:
  """Returns a short sha256 of `start`, and of files and their places."""
  together = hashlib.sha256(start)
  for file in files:
    try:
      content = file.read_bytes()
    except OSError as error:
      raise ValueError(
        f'{file} cannot be read ({error.strerror}): make it readable, or '
        'move it away.'
      ) from error
    # Names of files need not be text.
    together.update(os.fsencode(file.relative_to(root)) + b'\0')
    together.update(hashlib.sha256(content).digest())
  return together.hexdigest()[:16]


def allocate(number: int, shape: tuple[int, ...]) -> np.ndarray:
  """Returns memory for images, `uint8 [number, *shape]`, if it is free."""
  needed = number * math.prod(shape)
  free = psutil.virtual_memory().available
  if needed > free:
    raise ValueError(
      f'{number:,} images of {list(shape)} pixels take {needed / 1e9:.3g} GB, '
      f'and {free / 1e9:.3g} GB of memory are free: give fewer or smaller ones.'
    )
  return np.empty((number, *shape), np.uint8)


def read_squares(
  files: Sequence[pathlib.Path], side: int, channels: int | None = None
) -> np.ndarray:
  """Decodes PNG or JPEG files to squares, `uint8 [N, side, side, C]`.

  Without `channels`, C is 1 if all files hold shades of grey alone, else 3.
  """
  # All files are looked at first: a wrong one is known in seconds.
  are_grey = [_check_header(file) for file in files]
  if channels is None:
    channels = 1 if all(are_grey) else 3
  mode = 'L' if channels == 1 else 'RGB'
  images = allocate(len(files), (side, side, channels))
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
    with open(file, 'rb') as stream:
      stream.seek(_BIT_DEPTH)
      bits = stream.read(1)[0]
    if bits > 8:
      raise ValueError(
        f'{file} has {bits} bits per channel, and 8 of them would '
        'be lost: convert it to 8 bits with the window of values that matters.'
      )
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
  """Decodes a file as `read_squares` does, in its own size, `uint8 [H, W, C]`.

  `check_shape` gets this shape before pixels are decoded.
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
