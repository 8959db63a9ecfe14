"""Federated EMNIST digits with the native split by writer, in TFF's format.

The file is TFF's `emnist_all.sqlite`. It is looked for at

1. `<data_dir>/tff/emnist_all.sqlite`;
2. `<data_dir>/tff/emnist_all.sqlite.lzma`, unpacked once into the cache;
3. without a data directory, `~/.tff/emnist_all.sqlite`, TFF's own cache;
4. else `tff.simulation.datasets.emnist.load_data` downloads it there.

TFF's `ClientData` reads one client at a time and builds SQL from client ids.
Here the table is read in one pass, read-only, and the decoded arrays are kept
in `<cache_dir>/emnist/<identity of the file>/`.
"""

import collections
import contextlib
import hashlib
import json
import lzma
import os
import pathlib
import shutil
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from absl import logging
from tqdm import tqdm

from datasets.source import Source, Split

NUM_CLASSES = 10
INPUT_SHAPE = (28, 28, 1)
FILE_NAME = 'emnist_all.sqlite'
SPLITS = ('digits_only_train', 'digits_only_test')
PUBLIC_WRITERS = 3_383
PUBLIC_EXAMPLES = (341_873, 40_832)

# MNIST's .1307 is the share of ink; TFF stores black ink on white paper.
_MEAN = 1 - 0.1307
_STDDEV = 0.3081
_BACKGROUND = 255

_COLUMNS = {
  'examples': {'split_name', 'client_id', 'serialized_example_proto'},
  'client_metadata': {'split_name', 'client_id', 'num_examples'},
}
_ROWS_AT_ONCE = 4_096
_CHUNK_BYTES = 2**20
# The number in the name changes with what is decoded and how.
_DECODED_NAME = 'digits-1.npz'


def load(data_dir: str | None, cache_dir: str) -> Source:
  """Loads all writers.

  Examples stand in the order in which TFF gives them: client by client, ids
  ascending, and within a client in the order of the file.

  Args:
    data_dir: The folder that holds `tff/`, or `None` for TFF's own cache and
      download.
    cache_dir: Where the unpacked file and the decoded arrays are kept.

  Returns:
    The source; both splits carry client ids.

  Raises:
    ValueError: If no file is found, the one found is damaged or not in TFF's
      format, or the download fails.
    OSError: If the cache cannot be written.
  """
  path = _locate(data_dir)
  cache = os.path.join(cache_dir, 'emnist', _identity(path))
  decoded_path = os.path.join(cache, _DECODED_NAME)
  arrays = _read_decoded(decoded_path)
  if arrays is None:
    if path.endswith('.lzma'):
      path = _unpack(path, os.path.join(cache, FILE_NAME))
    arrays = _decode(path)
    with _atomic_file(decoded_path) as stream:
      np.savez(stream, **arrays)
  return _as_source(arrays)


def _locate(data_dir: str | None) -> str:
  if data_dir is not None:
    plain = os.path.join(data_dir, 'tff', FILE_NAME)
    for path in (plain, f'{plain}.lzma'):
      if os.path.isfile(path):
        return path
    raise ValueError(
      f"dataset='emnist': data_dir holds neither {plain} nor {plain}.lzma; put "
      'one of them there, or give no data_dir to let TFF download it.'
    )
  path = os.path.join(os.path.expanduser('~'), '.tff', FILE_NAME)
  if not os.path.isfile(path):
    _download(path)
  return path


def _download(path: str) -> None:
  """Lets TFF download next to `path`; only a sound file gets the final name.

  TFF itself writes to the final name, and takes whatever a broken download
  left there for complete ever after.
  """
  import tensorflow_federated as tff

  os.makedirs(os.path.dirname(path), exist_ok=True)
  staging = tempfile.mkdtemp(prefix='download-', dir=os.path.dirname(path))
  try:
    tff.simulation.datasets.emnist.load_data(
      only_digits=True, cache_dir=staging
    )
    downloaded = os.path.join(staging, FILE_NAME)
    with _open_database(downloaded):
      os.replace(downloaded, path)
  except Exception as error:  # Network, lzma, sqlite, disk: TFF wraps none.
    raise ValueError(
      f"dataset='emnist': TFF could not download {FILE_NAME} ({error}); give a "
      f'data_dir that holds tff/{FILE_NAME} or tff/{FILE_NAME}.lzma, or try '
      'again with a network.'
    ) from error
  finally:
    shutil.rmtree(staging)


def _identity(path: str) -> str:
  """Names the content: an archive by its hash, the far larger database by stat.

  The name is a folder of the cache: other content, other folder.
  """
  if path.endswith('.lzma'):
    with open(path, 'rb') as stream:
      return hashlib.file_digest(stream, 'sha256').hexdigest()[:16]
  stat = os.stat(path)
  facts = f'{os.path.realpath(path)}\n{stat.st_size}\n{stat.st_mtime_ns}'
  return hashlib.sha256(facts.encode('utf-8', 'surrogateescape')).hexdigest()[
    :16
  ]


@contextlib.contextmanager
def _atomic_file(path: str) -> Iterator[BinaryIO]:
  """Writes a file that appears under its name complete, or not at all."""
  folder = os.path.dirname(path)
  os.makedirs(folder, exist_ok=True)
  handle, temporary = tempfile.mkstemp(dir=folder, suffix='.tmp')
  try:
    with os.fdopen(handle, 'wb') as stream:
      yield stream
      stream.flush()
      os.fsync(stream.fileno())
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise


def _unpack(archive: str, path: str) -> str:
  """Unpacks `archive` to `path`, unless that has been done; returns `path`."""
  if os.path.isfile(path):
    return path
  try:
    with (
      _atomic_file(path) as target,
      open(archive, 'rb') as packed,
      lzma.open(packed) as unpacked,
      tqdm(
        desc=f'Unpacking {os.path.basename(archive)}',
        total=os.path.getsize(archive),
        unit='B',
        unit_scale=True,
        disable=None,
      ) as progress,
    ):
      while chunk := unpacked.read(_CHUNK_BYTES):
        target.write(chunk)
        progress.update(packed.tell() - progress.n)
  except (lzma.LZMAError, EOFError) as error:
    raise ValueError(
      f'{archive}: damaged or cut short ({error}); replace it.'
    ) from error
  return path


@contextlib.contextmanager
def _open_database(path: str) -> Iterator[sqlite3.Connection]:
  """Opens a database in TFF's format; whatever sqlite finds is a ValueError.

  Read-only, since sqlite would create a missing file, and complete, since
  sqlite notices a missing end only when it reads there.
  """
  _check_complete(path)
  uri = f'{pathlib.Path(path).absolute().as_uri()}?mode=ro'
  try:
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
      for table, wanted in _COLUMNS.items():
        rows = connection.execute(f'PRAGMA table_info({table})')
        if missing := wanted - {row[1] for row in rows}:
          raise _unusable(
            path, f'the table {table} lacks the columns {sorted(missing)}'
          )
      for split in SPLITS:
        clients = _clients_of(connection, split)
        types = {(type(key), type(value)) for key, value in clients.items()}
        if types != {(str, int)} or not sum(clients.values()):
          raise _unusable(path, f'no examples by writer in the split {split}')
      yield connection
  except sqlite3.Error as error:
    raise _unusable(path, str(error)) from error


def _check_complete(path: str) -> None:
  """Compares the size with what the database header declares."""
  size = os.path.getsize(path)
  with open(path, 'rb') as stream:
    header = stream.read(100)
  if len(header) < 100 or not header.startswith(b'SQLite format 3\0'):
    raise _unusable(path, f'{size} bytes, no sqlite header')
  (page_size,) = struct.unpack_from('>H', header, 16)
  changes, pages = struct.unpack_from('>II', header, 24)
  (pages_written_at,) = struct.unpack_from('>I', header, 92)
  declared = pages * (65_536 if page_size == 1 else page_size)
  # sqlite's rule: the page count holds if it was written at the last change.
  if changes == pages_written_at and size < declared:
    raise _unusable(path, f'cut short, {size} of {declared} bytes')


def _unusable(path: str, found: str) -> ValueError:
  return ValueError(
    f"{path}: not TFF's federated EMNIST ({found}); delete or replace it."
  )


def _clients_of(
  connection: sqlite3.Connection, split: str
) -> collections.Counter[str]:
  """Returns the number of examples by client id, as the metadata tell it."""
  rows = connection.execute(
    'SELECT client_id, num_examples FROM client_metadata WHERE split_name=?',
    (split,),
  )
  return collections.Counter(dict(rows))


def _decode(path: str) -> dict[str, np.ndarray]:
  """Reads both splits into the arrays that the cache keeps.

  Returns:
    For `train` and `test`: `*_images` uint8 [N, 28, 28, 1], `*_labels` int32
    [N], `*_clients` int32 [N], an index into the ids. `ids`: the sorted ids as
    JSON in UTF-8, which any string survives. `sha256`: the digest of the rest.
  """
  with _open_database(path) as connection:
    splits = [_read_split(connection, path, split) for split in SPLITS]
  ids = sorted({client for _, _, clients in splits for client in clients})
  index_of = {client: index for index, client in enumerate(ids)}
  arrays = {}
  for key, (images, labels, clients) in zip(
    ('train', 'test'), splits, strict=True
  ):
    index = np.array([index_of[client] for client in clients], np.int32)
    order = np.argsort(index, kind='stable')
    arrays[f'{key}_images'] = images[order]
    arrays[f'{key}_labels'] = labels[order]
    arrays[f'{key}_clients'] = index[order]
  arrays['ids'] = np.frombuffer(json.dumps(ids).encode('utf-8'), np.uint8)
  arrays['sha256'] = _digest(arrays)
  return arrays


def _read_split(
  connection: sqlite3.Connection, path: str, split: str
) -> tuple[np.ndarray, np.ndarray, list[str]]:
  """Reads one split in one pass, in the order of the file."""
  cursor = connection.execute(
    'SELECT client_id, serialized_example_proto FROM examples '
    'WHERE split_name=? ORDER BY rowid',
    (split,),
  )
  images, labels, clients = [], [], []
  declared = _clients_of(connection, split)
  with tqdm(
    desc=f'Reading {split}', total=sum(declared.values()), disable=None
  ) as progress:
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
      batch_images, batch_labels = _parse([row[1] for row in rows], path)
      images.append(batch_images)
      labels.append(batch_labels)
      clients.extend(row[0] for row in rows)
      progress.update(len(rows))
  counts = collections.Counter(clients)
  if counts != declared:
    both = counts.keys() | declared.keys()
    client = min((c for c in both if counts[c] != declared[c]), key=repr)
    raise _unusable(
      path,
      f'{split} holds {counts[client]} examples of the client {client!r}, its '
      f'metadata say {declared[client]}',
    )
  return np.concatenate(images), np.concatenate(labels), clients


def _parse(protos: list[bytes], path: str) -> tuple[np.ndarray, np.ndarray]:
  """Parses `tf.train.Example`s into uint8 images and int32 labels."""
  import tensorflow as tf

  try:
    parsed = tf.io.parse_example(
      protos,
      {
        'pixels': tf.io.FixedLenFeature(INPUT_SHAPE[:2], tf.float32),
        'label': tf.io.FixedLenFeature((), tf.int64),
      },
    )
  except (tf.errors.OpError, TypeError, ValueError) as error:
    raise _unusable(
      path, 'an example that cannot be parsed as pixels [28, 28] and a label'
    ) from error
  pixels, labels = parsed['pixels'].numpy(), parsed['label'].numpy()
  # Negated, so that NaN is refused too.
  if not (np.all(pixels >= 0) and np.all(pixels <= 1)):
    raise _unusable(path, 'a pixel outside 0..1')
  if labels.min() < 0 or labels.max() >= NUM_CLASSES:
    raise _unusable(path, f'labels {labels.min()}..{labels.max()}, not 0..9')
  images = np.rint(pixels * 255).astype(np.uint8)[..., np.newaxis]
  return images, labels.astype(np.int32)


def _digest(arrays: dict[str, np.ndarray]) -> np.ndarray:
  digest = hashlib.sha256()
  for key in sorted(arrays.keys() - {'sha256'}):
    digest.update(f'{key} {arrays[key].dtype} {arrays[key].shape}'.encode())
    digest.update(np.ascontiguousarray(arrays[key]).data)
  return np.frombuffer(digest.digest(), np.uint8)


def _read_decoded(path: str) -> dict[str, np.ndarray] | None:
  """Returns the cached arrays, or `None` where they are absent or damaged."""
  if not os.path.isfile(path):
    return None
  try:
    with np.load(path, allow_pickle=False) as archive:
      arrays = dict(archive)
    sound = np.array_equal(arrays['sha256'], _digest(arrays))
  except (zipfile.BadZipFile, EOFError, KeyError, OSError, ValueError):
    sound = False
  if sound:
    return arrays
  logging.warning('%s is damaged; it is decoded anew.', path)
  return None


def _as_source(arrays: dict[str, np.ndarray]) -> Source:
  ids = np.array(json.loads(arrays['ids'].tobytes()), dtype=object)
  train, test = (
    Split(
      arrays[f'{key}_images'],
      arrays[f'{key}_labels'],
      ids[arrays[f'{key}_clients']],
    )
    for key in ('train', 'test')
  )
  found = (len(train.labels), len(test.labels))
  writers = len(np.unique(arrays['train_clients']))
  title = (
    f'Federated EMNIST digits: {writers:,} writers, {found[0]:,} train and '
    f'{found[1]:,} test examples'
  )
  if found != PUBLIC_EXAMPLES:
    title += (
      f', not the public {PUBLIC_WRITERS:,} writers, {PUBLIC_EXAMPLES[0]:,} '
      f'and {PUBLIC_EXAMPLES[1]:,}'
    )
  digest = arrays['sha256'].tobytes().hex()[:12]
  return Source(
    name='emnist',
    version=f'tff-emnist-digits-{found[0]}+{found[1]}-{digest}',
    title=title,
    train=train,
    test=test,
    num_classes=NUM_CLASSES,
    mean=(_MEAN,),
    stddev=(_STDDEV,),
    background=_BACKGROUND,
    mirrorable=False,
  )
