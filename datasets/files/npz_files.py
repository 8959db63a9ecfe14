"""npz files that are not trusted: checked whole before an array is read.

Nothing is unpickled, and what the zip directory and the array headers declare
is checked first: numpy allocates what a header declares before it reads.
"""

import dataclasses
import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import psutil

MAX_BYTES = 4 * 10**9

# Shape and dtype by key, as the headers declare them.
Headers = dict[str, tuple[tuple[int, ...], np.dtype]]

_HEADER_READERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclasses.dataclass(frozen=True)
class NpzFile:
  """A file of arrays.

  Attributes:
    path: Where it lies.
    remedy: What to do where it is damaged, such as 'write it with np.savez'.
  """

  path: str
  remedy: str

  def wrong(self, key: str, found: object, remedy: str) -> ValueError:
    """Returns the error that an array is not what it should be.

    Args:
      key: The array's.
      found: What it is or holds.
      remedy: What to do.
    """
    return ValueError(f'{self.path}: {key}: found {found}; {remedy}.')

  def has_key(self, key: str) -> bool:
    """Returns whether an array has this key, by the zip directory alone.

    A file that is absent or no zip file has no key; `read` says what is wrong.

    Args:
      key: The array's.
    """
    if not os.path.isfile(self.path):
      return False
    try:
      with zipfile.ZipFile(self.path) as archive:
        return key in map(_key, archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError):
      return False

  def declared_bytes(self) -> int:
    """Returns how much the zip directory declares to hold, uncompressed.

    Raises:
      ValueError: If it is no zip file.
    """
    try:
      with zipfile.ZipFile(self.path) as archive:
        return sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
      raise ValueError(
        f'{self.path}: no complete npz file ({error}); {self.remedy}.'
      ) from error

  def read(
    self,
    required: Sequence[str],
    check: Callable[[Headers], None],
    optional: Sequence[str] = (),
  ) -> dict[str, np.ndarray]:
    """Reads the arrays after their headers have been checked.

    Args:
      required: Keys that must be there.
      check: Gets the headers and raises `ValueError` if they are wrong.
      optional: Keys that may be there; no others are allowed.

    Returns:
      The arrays by key.

    Raises:
      ValueError: If the file is damaged, its keys are not those, an array is
        pickled or not of the declared size, or `check` refuses.
    """
    try:
      with zipfile.ZipFile(self.path) as archive:
        self._check_keys(archive, required, optional)
        check(
          {
            _key(member): self._read_header(archive, member)
            for member in archive.infolist()
          }
        )
      with np.load(self.path, allow_pickle=False) as arrays:
        return dict(arrays)
    except (
      zipfile.BadZipFile,
      zlib.error,
      EOFError,
      OSError,
      NotImplementedError,  # An unknown compression.
      RuntimeError,  # An encrypted member.
    ) as error:
      raise ValueError(
        f'{self.path}: damaged or unreadable ({error}); {self.remedy}.'
      ) from error

  def _check_keys(self, archive, required, optional) -> None:
    keys = [_key(member) for member in archive.infolist()]
    if not set(required) <= set(keys) <= {*required, *optional}:
      allowed = f'may be {", ".join(optional)}, ' if optional else ''
      raise ValueError(
        f'{self.path}: found the keys {sorted(keys)}; there must be '
        f'{", ".join(required[:-1])} and {required[-1]}, {allowed}and nothing '
        'else.'
      )
    if len(set(keys)) < len(keys):
      raise ValueError(f'{self.path}: found a key twice; {self.remedy}.')

  def _read_header(self, archive, member) -> tuple[tuple[int, ...], np.dtype]:
    """Returns shape and dtype; the declared size must be the member's own."""
    key = _key(member)
    with archive.open(member) as stream:
      try:
        read_header = _HEADER_READERS[np.lib.format.read_magic(stream)]
        shape, _, dtype = read_header(stream)
      except (ValueError, KeyError) as error:
        raise ValueError(
          f'{self.path}: {key}: no plain npy array ({error}); {self.remedy}.'
        ) from error
      if dtype.hasobject:
        raise self.wrong(
          key, 'pickled objects', 'they are never loaded; use plain arrays'
        )
      declared = stream.tell() + math.prod(shape) * dtype.itemsize
    if declared != member.file_size:
      raise ValueError(
        f'{self.path}: {key}: the header declares {declared} bytes and the '
        f'file holds {member.file_size}; {self.remedy}.'
      )
    return shape, dtype


def _key(member: zipfile.ZipInfo) -> str:
  return member.filename.removesuffix('.npy')


def check_present(
  dataset: str, data_dir: str | None, names: Sequence[str]
) -> None:
  """Checks that a folder is given and holds all files of a data set.

  Args:
    dataset: Name of the data set.
    data_dir: The folder, or `None`.
    names: Of the files, at least two.

  Raises:
    ValueError: If there is no folder, or a file is not in it.
  """
  listed = f'{", ".join(names[:-1])} and {names[-1]}'
  if data_dir is None:
    raise ValueError(
      f'dataset={dataset!r} needs data_dir: the folder that holds {listed}.'
    )
  for name in names:
    path = os.path.join(data_dir, name)
    if not os.path.isfile(path):
      raise ValueError(f'{path}: no such file; data_dir must hold {listed}.')


def check_sizes(files: Sequence[NpzFile], max_bytes: int) -> None:
  """Refuses files that are no zip, and too much data.

  Args:
    files: Files that exist and will be held in memory together.
    max_bytes: The most that they may declare to hold, uncompressed.

  Raises:
    ValueError: If one is no zip file, or they declare more than `max_bytes` or
      than the free memory.
  """
  declared = sum(file.declared_bytes() for file in files)
  free = psutil.virtual_memory().available
  if declared > min(max_bytes, free):
    names = [files[0].path, *(os.path.basename(f.path) for f in files[1:])]
    raise ValueError(
      f'{" and ".join(names)}: {declared / 1e9:.3g} GB uncompressed are '
      f'declared; the limit is {max_bytes / 1e9:.3g} GB and {free / 1e9:.3g} '
      'GB of memory are free: give fewer or smaller images.'
    )


def moments(
  images: np.ndarray, file: NpzFile, key: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Per-channel mean and deviation in [0, 1], exact from the histograms.

  Args:
    images: `uint8 [N, H, W, C]`.
    file: Where they come from.
    key: Their key in it.

  Returns:
    C means and C standard deviations.

  Raises:
    ValueError: If a channel holds one single value.
  """
  levels = np.arange(256) / 255
  mean, stddev = [], []
  for channel in range(images.shape[3]):
    histogram = np.bincount(images[..., channel].ravel(), minlength=256)
    share = histogram / histogram.sum()
    mean.append(float(share @ levels))
    stddev.append(float(np.sqrt(share @ (levels - mean[-1]) ** 2)))
    if np.count_nonzero(histogram) == 1:
      raise file.wrong(
        key,
        f'one single value in channel {channel}',
        'it holds nothing to learn from, leave it out',
      )
  return tuple(mean), tuple(stddev)


def background(images: np.ndarray) -> int:
  """Returns the median of the corner pixels, a grey value in [0, 255].

  A motif rarely fills the corners, and the median takes no notice where it
  does.

  Args:
    images: `uint8 [N, H, W, C]`.
  """
  return int(np.median(images[:, [0, 0, -1, -1], [0, -1, 0, -1]]))


def digest(files: Sequence[NpzFile]) -> str:
  """Returns a short sha256 over the digests of the files.

  Args:
    files: In the order in which they count.
  """
  together = hashlib.sha256()
  for file in files:
    with open(file.path, 'rb') as stream:
      together.update(hashlib.file_digest(stream, 'sha256').digest())
  return together.hexdigest()[:16]
