"""A user's own images: `<data_dir>/train.npz` and `<data_dir>/test.npz`.

Each file is what `np.savez` or `np.savez_compressed` writes, with the arrays

* `images`: `uint8 [N, H, W]` or `[N, H, W, C]`, C = 1 or 3;
* `labels`: any integer type, `[N]`, from 0;
* `client_ids` (optional): strings or integers, `[N]`, the owner of each
  example; in both files, or in train.npz alone.

The files are not trusted: nothing is unpickled, and what the zip directory and
the array headers declare is checked before an array is read.
"""

import hashlib
import math
import os
import zipfile
import zlib

import numpy as np
import psutil

from datasets.source import Source, Split

MAX_BYTES = 4 * 10**9
_SPLITS = ('train', 'test')
_KEYS = ('images', 'labels', 'client_ids')


def load(
  data_dir: str | None, cache_dir: str, max_bytes: int = MAX_BYTES
) -> Source:
  """Loads train.npz and test.npz.

  The mean and standard deviation are those of the training images. The
  background is the median of their corner pixels: a motif rarely fills the
  corners, and the median takes no notice where it does.

  Args:
    data_dir: The folder with the two files.
    cache_dir: Not looked at: the files are read as they are.
    max_bytes: The most that both files may declare to hold, uncompressed.

  Returns:
    The source; `num_classes` is the largest label + 1.

  Raises:
    ValueError: If a file is absent, damaged, too large, or holds anything but
      the arrays above.
  """
  del cache_dir
  if data_dir is None:
    raise ValueError(
      "dataset='npz' needs data_dir: the folder that holds train.npz and "
      'test.npz.'
    )
  paths = [os.path.join(data_dir, f'{split}.npz') for split in _SPLITS]
  _check_sizes(paths, max_bytes)
  train, test = (_read_split(path) for path in paths)
  num_classes = _check_together(train, test, paths)
  mean, stddev = _moments(train.images, paths[0])
  examples = f'{len(train.labels):,} train and {len(test.labels):,} test'
  return Source(
    name='npz',
    version=f'npz-{_digest(paths)}',
    title=f'npz files in {os.path.basename(os.path.abspath(data_dir))}: '
    f'{examples} examples',
    train=train,
    test=test,
    num_classes=num_classes,
    mean=mean,
    stddev=stddev,
    background=int(np.median(train.images[:, [0, 0, -1, -1], [0, -1, 0, -1]])),
    mirrorable=False,
  )


def _check_sizes(paths: list[str], max_bytes: int) -> None:
  """Refuses absent files, files that are no zip, and too much data."""
  declared = 0
  for path in paths:
    if not os.path.isfile(path):
      raise ValueError(
        f'{path}: no such file; data_dir must hold train.npz and test.npz.'
      )
    try:
      with zipfile.ZipFile(path) as archive:
        declared += sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError) as error:
      raise ValueError(
        f'{path}: no complete npz file ({error}); write it with np.savez.'
      ) from error
  free = psutil.virtual_memory().available
  if declared > min(max_bytes, free):
    raise ValueError(
      f'{paths[0]} and {os.path.basename(paths[1])} declare '
      f'{declared / 1e9:.3g} GB uncompressed; the limit is '
      f'{max_bytes / 1e9:.3g} GB and {free / 1e9:.3g} GB of memory are free: '
      'give fewer or smaller images.'
    )


def _read_split(path: str) -> Split:
  try:
    with zipfile.ZipFile(path) as archive:
      _check_headers(path, archive)
    with np.load(path, allow_pickle=False) as arrays:
      images, labels = arrays['images'], arrays['labels']
      client_ids = arrays.get('client_ids')
  except (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,  # An unknown compression.
    RuntimeError,  # An encrypted member.
  ) as error:
    raise ValueError(
      f'{path}: damaged or unreadable ({error}); write it with np.savez.'
    ) from error
  if labels.min() < 0 or labels.max() >= 2**31 - 1:
    raise ValueError(
      f'{path}: labels: found {labels.min()}..{labels.max()}; number the '
      'classes from 0.'
    )
  if images.ndim == 3:
    images = images[..., np.newaxis]
  if client_ids is not None:
    client_ids = _as_strings(path, client_ids)
  return Split(
    np.ascontiguousarray(images), labels.astype(np.int32), client_ids
  )


def _check_headers(path: str, archive: zipfile.ZipFile) -> None:
  """Checks keys, shapes, types and sizes without reading an array."""
  keys = [name.removesuffix('.npy') for name in archive.namelist()]
  if not {'images', 'labels'} <= set(keys) or not set(keys) <= set(_KEYS):
    raise ValueError(
      f'{path}: found the keys {sorted(keys)}; there must be images and '
      'labels, may be client_ids, and nothing else.'
    )
  if len(set(keys)) < len(keys):
    raise ValueError(f'{path}: found a key twice; write it with np.savez.')
  headers = {
    key: _read_header(path, key, archive, member)
    for key, member in zip(keys, archive.infolist(), strict=True)
  }
  shape, dtype = headers['images']
  if dtype != np.uint8:
    raise _wrong(path, 'images', dtype, 'scale them to 0..255 as uint8')
  if len(shape) not in (3, 4):
    raise _wrong(
      path, 'images', shape, 'the shape is [N, H, W] or [N, H, W, C]'
    )
  if min(shape) < 1:
    raise _wrong(path, 'images', shape, 'no dimension may be 0')
  if len(shape) == 4 and shape[3] not in (1, 3):
    raise _wrong(path, 'images', shape, 'channels come last, 1 or 3 of them')
  for key, kinds, remedy in [
    ('labels', 'iu', 'labels are integers from 0'),
    ('client_ids', 'iuU', 'ids are unicode strings or integers'),
  ]:
    if key not in headers:
      continue
    key_shape, key_dtype = headers[key]
    if key_dtype.kind not in kinds:
      raise _wrong(path, key, key_dtype, remedy)
    if key_shape != shape[:1]:
      raise _wrong(path, key, key_shape, f'there are {shape[0]} images')


def _read_header(
  path: str, key: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> tuple[tuple[int, ...], np.dtype]:
  """Returns shape and dtype; the declared size must be the member's own.

  numpy allocates what a header declares before it reads, so a header that
  promises more than the member holds must not get that far.
  """
  readers = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
  }
  with archive.open(member) as stream:
    try:
      read_header = readers[np.lib.format.read_magic(stream)]
      shape, _, dtype = read_header(stream)
    except (ValueError, KeyError) as error:
      raise ValueError(
        f'{path}: {key}: no plain npy array ({error}); write it with np.savez.'
      ) from error
    if dtype.hasobject:
      raise _wrong(
        path, key, 'pickled objects', 'they are never loaded; use plain arrays'
      )
    declared = stream.tell() + math.prod(shape) * dtype.itemsize
  if declared != member.file_size:
    raise ValueError(
      f'{path}: {key}: the header declares {declared} bytes and the file holds '
      f'{member.file_size}; write it with np.savez.'
    )
  return shape, dtype


def _wrong(path: str, key: str, found: object, remedy: str) -> ValueError:
  return ValueError(f'{path}: {key}: found {found}; {remedy}.')


def _as_strings(path: str, client_ids: np.ndarray) -> np.ndarray:
  """Turns ids into an object array that shares one string per client."""
  unique, index = np.unique(client_ids, return_inverse=True)
  if unique.dtype.kind == 'U':
    native = unique.astype(unique.dtype.newbyteorder('='), copy=False)
    codes = np.frombuffer(native.tobytes(), np.uint32)
    # numpy keeps such codes, and Python makes strings of them, unasked.
    if np.any(((codes >= 0xD800) & (codes < 0xE000)) | (codes > 0x10FFFF)):
      raise _wrong(
        path, 'client_ids', 'a string that is not unicode', 'repair the id'
      )
  strings = [str(client_id) for client_id in unique.tolist()]
  return np.array(strings, dtype=object)[index]


def _check_together(train: Split, test: Split, paths: list[str]) -> int:
  """Checks test against train and returns the number of classes."""
  if train.images.shape[1:] != test.images.shape[1:]:
    raise ValueError(
      f'{paths[1]}: images: found {list(test.images.shape[1:])} a piece and '
      f'{list(train.images.shape[1:])} in train.npz; both need one H, W, C.'
    )
  if train.client_ids is None and test.client_ids is not None:
    raise ValueError(
      f'{paths[1]}: client_ids: found here but not in train.npz; give them '
      'in both files or in train.npz alone.'
    )
  num_classes = int(train.labels.max()) + 1
  if num_classes > len(train.labels):
    raise ValueError(
      f'{paths[0]}: labels: found {num_classes - 1} as the largest of '
      f'{len(train.labels)} labels; number the classes without gaps from 0.'
    )
  unseen = np.setdiff1d(test.labels, train.labels)
  if unseen.size:
    raise ValueError(
      f'{paths[1]}: labels: found {unseen[:5].tolist()}, unseen in train.npz; '
      'every class needs training examples.'
    )
  return num_classes


def _moments(
  images: np.ndarray, path: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
  """Per-channel mean and deviation in [0, 1], exact from the histograms."""
  levels = np.arange(256) / 255
  mean, stddev = [], []
  for channel in range(images.shape[3]):
    histogram = np.bincount(images[..., channel].ravel(), minlength=256)
    share = histogram / histogram.sum()
    mean.append(float(share @ levels))
    stddev.append(float(np.sqrt(share @ (levels - mean[-1]) ** 2)))
    if np.count_nonzero(histogram) == 1:
      raise ValueError(
        f'{path}: images: found one single value in channel {channel}; it '
        'holds nothing to learn from, leave it out.'
      )
  return tuple(mean), tuple(stddev)


def _digest(paths: list[str]) -> str:
  """A short sha256 over the digests of the files."""
  both = hashlib.sha256()
  for path in paths:
    with open(path, 'rb') as stream:
      both.update(hashlib.file_digest(stream, 'sha256').digest())
  return both.hexdigest()[:16]
