"""Reads npz files that are not trusted; all checks come before the arrays.

Nothing is unpickled. NumPy allocates the memory that a header declares before
it reads, so the zip directory and the headers are checked first. Arrays that
were decoded are kept in npz files that hold their own digest.
"""

import contextlib
import dataclasses
import hashlib
import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np
import psutil
from absl import logging

from tff_ssl.common import whole_files

MAX_BYTES = 4 * 10**9
DIGEST = 'sha256'

# The shape and dtype that the header of each key declares.
Headers = dict[str, tuple[tuple[int, ...], np.dtype]]

_HEADER_READERS = {
  (1, 0): np.lib.format.read_array_header_1_0,
  (2, 0): np.lib.format.read_array_header_2_0,
}
# What the readers of zip files raise where bytes make no sense to them.
_DAMAGED = (
  *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
  *(EOFError, OSError, LookupError, UnicodeError),
  RuntimeError,  # Encrypted, or packed in an unknown way.
)


def read_npy_header(stream: BinaryIO) -> tuple[tuple[int, ...], np.dtype, int]:
  """Returns shape, dtype, and the bytes that a header says its file has."""
  try:
    read_header = _HEADER_READERS[np.lib.format.read_magic(stream)]
    shape, _, dtype = read_header(stream)
  except (
    *(ValueError, LookupError, TypeError, SyntaxError, tokenize.TokenError),
    *(MemoryError, RecursionError),  # Of brackets in brackets.
  ) as error:
    # NumPy's advice, to trust the file, stands in further lines.
    reason = str(error).partition('\n')[0]
    raise ValueError(f'a header that makes no sense: {reason}') from error
  if not dtype.itemsize or any(type(n) is not int or n < 0 for n in shape):
    raise ValueError(f'the header declares {dtype} {list(shape)}')
  return shape, dtype, stream.tell() + math.prod(shape) * dtype.itemsize


def wrong(path: str, field: str, found: object, remedy: str) -> ValueError:
  """Returns the error about a column or an array of a file."""
  return ValueError(f'{path}: {field}: found {found}; {remedy}.')


@dataclasses.dataclass(frozen=True)
class NpzFile:
  """A file of arrays; `remedy` says what to do if it is damaged."""

  path: str
  remedy: str

  def wrong(self, key: str, found: object, remedy: str) -> ValueError:
    """Returns the error for an array with a wrong form or content."""
    return wrong(self.path, key, found, remedy)

  def listed(self) -> set[str]:
    """Returns the keys that the zip directory lists."""
    with self._opened() as archive:
      return {_key(member) for member in archive.infolist()}

  def length(self, key: str) -> int:
    """Returns the length that an array's header declares; 0 without one."""
    with self._opened() as archive:
      for member in archive.infolist():
        if _key(member) == key:
          return self._read_header(archive, member)[0][0]
    return 0

  def declared_bytes(self) -> int:
    """Returns the uncompressed size that the zip directory declares."""
    with self._opened() as archive:
      return sum(member.file_size for member in archive.infolist())

  def read(
    self,
    required: Sequence[str],
    check: Callable[[Headers], None],
    optional: Sequence[str] = (),
    *,
    ignores_others: bool = False,
  ) -> dict[str, np.ndarray]:
    """Checks the headers, then reads the arrays, by key.

    `check` raises `ValueError` if headers are wrong. With `ignores_others` the
    file may have other keys, which are not read.
    """
    with self._opened() as archive:
      # A damaged zip directory may lack arrays in silence.
      for member in archive.infolist():
        archive.open(member).close()  # Compares its two names.
        if b'PK\1\2' in member.extra + member.comment:
          raise zipfile.BadZipFile('an entry that holds others')
      known = {*required, *optional}
      self._check_keys(archive, required, known, ignores_others)
      wanted = [m for m in archive.infolist() if _key(m) in known]
      check({_key(m): self._read_header(archive, m) for m in wanted})
      return {_key(m): self._read_array(archive, m) for m in wanted}

  def read_single(
    self, key: str, check: Callable[[Headers], None]
  ) -> np.ndarray:
    """Reads the array of a file of `np.save`, which is called `key` here."""
    try:
      with open(self.path, 'rb') as stream:
        shape, dtype, declared = read_npy_header(stream)
    except (OSError, ValueError) as error:
      raise ValueError(
        f'{self.path}: no complete npy file ({error}); {self.remedy}.'
      ) from error
    found = os.path.getsize(self.path)
    if dtype.hasobject or declared != found:
      raise self.wrong(
        key,
        f'{dtype} {list(shape)} of {declared} bytes in a file of {found}',
        self.remedy,
      )
    check({key: (shape, dtype)})
    return np.load(self.path, allow_pickle=False)

  @contextlib.contextmanager
  def _opened(self) -> Iterator[zipfile.ZipFile]:
    """Opens the file; whatever makes no sense in its bytes is one sentence."""
    try:
      if not os.path.isfile(self.path):  # Who opens a pipe waits for ever.
        raise OSError('no such file')
      archive = zipfile.ZipFile(self.path)
    except (ValueError, *_DAMAGED) as error:
      raise self._damaged(error) from error
    with archive:
      try:
        yield archive
      except _DAMAGED as error:
        raise self._damaged(error) from error

  def _damaged(self, error: Exception) -> ValueError:
    return ValueError(
      f'{self.path}: no complete npz file ({error}); {self.remedy}.'
    )

  def _check_keys(self, archive, required, known, ignores_others) -> None:
    keys = [_key(member) for member in archive.infolist()]
    missing = set(required) - set(keys)
    if missing or not (ignores_others or set(keys) <= known):
      others = sorted(known - set(required))
      allowed = f', may be {", ".join(others)}' if others else ''
      end = '' if ignores_others else ', and nothing else'
      needed = ' and '.join(
        filter(None, [', '.join(required[:-1]), required[-1]])
      )
      raise ValueError(
        f'{self.path}: found the keys {sorted(keys)}; there must be {needed}'
        f'{allowed}{end}.'
      )
    if len(set(keys)) < len(keys):
      raise ValueError(f'{self.path}: found a key twice; {self.remedy}.')

  def _read_header(self, archive, member) -> tuple[tuple[int, ...], np.dtype]:
    """Returns shape and dtype; the declared size must be the member's own."""
    key = _key(member)
    with archive.open(member) as stream:
      try:
        shape, dtype, declared = read_npy_header(stream)
      except ValueError as error:
        raise ValueError(
          f'{self.path}: {key}: no plain npy array ({error}); {self.remedy}.'
        ) from error
      if dtype.hasobject:
        raise self.wrong(
          key, 'pickled objects', 'they are never loaded; use plain arrays'
        )
    if declared != member.file_size:
      raise ValueError(
        f'{self.path}: {key}: the header declares {declared} bytes and the '
        f'file holds {member.file_size}; {self.remedy}.'
      )
    return shape, dtype

  def _read_array(self, archive, member) -> np.ndarray:
    """Returns an array whose header is sound."""
    with archive.open(member) as stream:
      try:
        return np.lib.format.read_array(stream, allow_pickle=False)
      except ValueError as error:
        raise self._damaged(error) from error


def _key(member: zipfile.ZipInfo) -> str:
  return member.filename.removesuffix('.npy')


def check_present(
  dataset: str, data_dir: str | None, names: Sequence[str]
) -> None:
  """Checks that a folder is given and holds all files of a data set."""
  listed = f'{", ".join(names[:-1])} and {names[-1]}'
  if data_dir is None:
    raise ValueError(
      f'dataset={dataset!r} needs data_dir: the folder that holds {listed}.'
    )
  for name in names:
    path = os.path.join(data_dir, name)
    if not os.path.isfile(path):
      raise ValueError(f'{path}: no such file; data_dir must hold {listed}.')


def check_sizes(files: Sequence[NpzFile]) -> None:
  """Checks that files that are held in memory together are small enough."""
  declared = sum(file.declared_bytes() for file in files)
  free = psutil.virtual_memory().available
  if declared > min(MAX_BYTES, free):
    names = [files[0].path, *(os.path.basename(f.path) for f in files[1:])]
    raise ValueError(
      f'{" and ".join(names)}: {declared / 1e9:.3g} GB uncompressed are '
      f'declared; the limit is {MAX_BYTES / 1e9:.3g} GB and {free / 1e9:.3g} '
      'GB of memory are free: give fewer or smaller images.'
    )


def as_bytes(path: str, images: np.ndarray) -> np.ndarray:
  """Returns images as `uint8`; floats from 0 to 1 are rounded to 1/255."""
  if images.dtype == np.uint8:
    return images
  low, high = images.min(), images.max()
  if np.isnan(low):
    raise wrong(
      path,
      'images',
      f'{np.count_nonzero(np.isnan(images)):,} pixels that are NaN',
      'replace them, or leave these images out',
    )
  if low < 0 or high > 1:
    raise wrong(
      path,
      'images',
      f'floats from {low:g} to {high:g}',
      'give uint8 from 0 to 255, or divide the images of all files by one '
      'number so that they are from 0 to 1',
    )
  return np.rint(images * 255).astype(np.uint8)


def moments(
  images: np.ndarray, path: str, key: str = 'images'
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Returns each channel's exact mean and deviation; refuses flat ones."""
  levels = np.arange(256) / 255
  mean, stddev = [], []
  for channel in range(images.shape[3]):
    histogram = np.bincount(images[..., channel].ravel(), minlength=256)
    share = histogram / histogram.sum()
    mean.append(float(share @ levels))
    stddev.append(float(np.sqrt(share @ (levels - mean[-1]) ** 2)))
    if np.count_nonzero(histogram) == 1:
      raise wrong(
        path,
        key,
        f'one single value in channel {channel}',
        'nothing can be learnt from it, leave it out',
      )
  return tuple(mean), tuple(stddev)


def background(images: np.ndarray) -> int:
  """Returns the median of the corner pixels, a grey value in [0, 255]."""
  # A motif rarely fills the corners, and the median ignores the exceptions.
  return int(np.median(images[:, [0, 0, -1, -1], [0, -1, 0, -1]]))


def digest(paths: Iterable[str]) -> str:
  """Returns a short sha256 of the names and the digests of files in order."""
  together = hashlib.sha256()
  for path in paths:
    with open(path, 'rb') as stream:
      together.update(os.path.basename(path).encode() + b'\0')
      together.update(hashlib.file_digest(stream, 'sha256').digest())
  return together.hexdigest()[:16]


def keep(path: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Writes arrays by name atomically, and returns what `kept` will."""
  arrays = {**arrays, DIGEST: _digest_of(arrays)}
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with whole_files.replacing(path) as stream:
    write(stream, arrays)
  return arrays


def write(
  stream: BinaryIO,
  arrays: Mapping[str, np.ndarray],
  compression: int = zipfile.ZIP_STORED,
) -> None:
  """Writes the bytes of `np.savez`, or of `np.savez_compressed`.

  These leave an archive open where the disk is full, and Python says so later,
  with a traceback.
  """
  with zipfile.ZipFile(stream, 'w', compression) as archive:
    for name, array in arrays.items():
      with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)


def kept(path: str) -> dict[str, np.ndarray] | None:
  """Returns the arrays of such a file, or `None` if it is absent or damaged."""
  if not os.path.isfile(path):
    return None
  try:
    with np.load(path, allow_pickle=False) as archive:
      arrays = dict(archive)
    sound = np.array_equal(arrays[DIGEST], _digest_of(arrays))
  except (zipfile.BadZipFile, EOFError, KeyError, OSError, ValueError):
    sound = False
  if sound:
    return arrays
  logging.warning('%s is damaged; it is decoded anew.', path)
  return None


def _digest_of(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
  digest = hashlib.sha256()
  for key in sorted(arrays.keys() - {DIGEST}):
    digest.update(f'{key} {arrays[key].dtype} {arrays[key].shape}'.encode())
    digest.update(np.ascontiguousarray(arrays[key]).data)
  return np.frombuffer(digest.digest(), np.uint8)
