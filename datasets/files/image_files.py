"""What folders of images share: which files they hold, and what these may be.

Hidden files, and those that Windows leaves in folders of images, are passed
over. All else that does not belong there is refused by name.
"""

import dataclasses
import hashlib
import math
import os
import pathlib
import unicodedata

import numpy as np
import psutil

# The position of the bits per channel in a PNG file: after the signature, the
# length and name of the first chunk, the width and the height.
_BIT_DEPTH = 24
_OF_WINDOWS = ('thumbs.db', 'desktop.ini')


@dataclasses.dataclass(frozen=True)
class Layout:
  """How the folders of a data set are arranged.

  Attributes:
    dataset: The name of the data set.
    holds: What its folder must hold, for messages.
    kind: What the images are, such as 'PNG'.
    suffixes: The ends of their names, in lower case.
  """

  dataset: str
  holds: str
  kind: str
  suffixes: tuple[str, ...]

  def root(self, data_dir: str | None) -> pathlib.Path:
    """Returns the folder of the data set.

    Args:
      data_dir: The folder, or `None`.

    Raises:
      ValueError: If no folder is given.
    """
    if data_dir is None:
      raise ValueError(
        f'dataset={self.dataset!r} needs data_dir: the folder that holds '
        f'{self.holds}.'
      )
    return pathlib.Path(data_dir)

  def folders(self, folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folders in a folder, sorted.

    Args:
      folder: The folder.

    Raises:
      ValueError: If the folder is absent or empty, or holds a file.
    """
    found = self._visible(folder)
    for path in found:
      if not path.is_dir():
        raise ValueError(
          f'{path} is not a folder, and only folders may be here: move it '
          f'(data_dir must hold {self.holds}).'
        )
    if not found:
      raise ValueError(
        f'{folder} is empty: put folders of {self.kind} files into it, or '
        'remove it.'
      )
    return found

  def folders_by_name(self, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the folders in a folder by their names, compared as people do.

    Args:
      folder: The folder.

    Raises:
      ValueError: As `folders`, or if two have one name but for spaces or the
        way in which accents are written.
    """
    found = {}
    for path in self.folders(folder):
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
    return found

  def images(self, folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the images in a folder, sorted.

    Args:
      folder: The folder.

    Raises:
      ValueError: If the folder is absent or empty, or holds anything else.
    """
    found = self._visible(folder)
    for path in found:
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
  """Returns what a folder holds and a user means to be there, sorted.

  Args:
    folder: An existing folder.
  """
  # Sorted, because file systems list files in different orders.
  return sorted(
    path
    for path in folder.iterdir()
    if not path.name.startswith('.') and path.name.lower() not in _OF_WINDOWS
  )


def add_to_digest(
  digest, root: pathlib.Path, file: pathlib.Path, content: bytes
) -> None:
  """Adds a file to a digest of the files of a folder.

  Args:
    digest: The digest, of `hashlib`.
    root: The folder.
    file: The file; its place in the folder counts.
    content: Its bytes.
  """
  # Names of files need not be text.
  digest.update(os.fsencode(file.relative_to(root)) + b'\0')
  digest.update(hashlib.sha256(content).digest())


def bits_of_png(path: str | os.PathLike) -> int:
  """Returns the bits per channel of a PNG file.

  Args:
    path: The file, which has a whole header.
  """
  with open(path, 'rb') as file:
    file.seek(_BIT_DEPTH)
    return file.read(1)[0]


def check_bits(file: pathlib.Path) -> None:
  """Checks that a PNG file has at most 8 bits per channel.

  Args:
    file: The file, which has a whole header.

  Raises:
    ValueError: If it has more.
  """
  bits = bits_of_png(file)
  if bits > 8:
    raise ValueError(
      f'{file} has {bits} bits per channel, and 8 of them would '
      'be lost: convert it to 8 bits with the window of values that matters.'
    )


def allocate(number: int, shape: tuple[int, ...]) -> np.ndarray:
  """Returns an array for images, `uint8 [number, *shape]`.

  Args:
    number: Number of images.
    shape: Height, width and channels.

  Raises:
    ValueError: If less memory is free.
  """
  needed = number * math.prod(shape)
  free = psutil.virtual_memory().available
  if needed > free:
    raise ValueError(
      f'{number:,} images of {list(shape)} pixels take {needed / 1e9:.3g} GB, '
      f'and {free / 1e9:.3g} GB of memory are free: give fewer or smaller ones.'
    )
  return np.empty((number, *shape), np.uint8)
