"""Federated EMNIST with the native split by writer, in TFF's format.

The file is `<data_dir>/tff/emnist_all.sqlite`, or `.sqlite.lzma`, unpacked once
into the cache. Without a data directory it is TFF's own in `~/.tff/`, which TFF
downloads if it is absent. The decoded arrays are kept in the cache.

TFF's `ClientData` reads one client at a time and builds SQL from client ids.
This module reads a split in one pass, and never writes to the file.
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
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from datasets.files import downloads, npz_files
from datasets.sources.source import SMALL_CLIENTS, Source, SourceSpec, Split
from tff_ssl.common import whole_files
from tff_ssl.common.setting import Setting

FILE_NAME = 'emnist_all.sqlite'
# Where TFF downloads it from.
_URL = f'https://storage.googleapis.com/tff-datasets-public/{FILE_NAME}.lzma'
_REMEDY = (
  f'give --data_dir, a folder that holds tff/{FILE_NAME} or '
  f'tff/{FILE_NAME}.lzma, or try again with a network'
)


class Content(NamedTuple):
  """A part of the file that forms a data set: digits, or all characters."""

  title: str
  key: str  # In `Source.version` and in the cache.
  splits: tuple[str, str]
  num_classes: int
  # In TFF's own file; numbers of training and test examples.
  public_writers: int
  public_examples: tuple[int, int]


DIGITS = Content(
  title='digits',
  key='digits',
  splits=('digits_only_train', 'digits_only_test'),
  num_classes=10,
  public_writers=3_383,
  public_examples=(341_873, 40_832),
)
# Classes 0-9 are digits, 10-35 capitals, 36-61 small letters.
CHARACTERS = Content(
  title='digits and letters',
  key='all',
  splits=('all_train', 'all_test'),
  num_classes=62,
  public_writers=3_400,
  public_examples=(671_585, 77_483),
)

# MNIST's .1307 is the share of ink; TFF stores black ink on white paper.
_MEAN = 1 - 0.1307
_STDDEV = 0.3081
# Change it when the decoding changes: caches are named by it.
_DECODING = 1
_CHUNK_BYTES = 2**20
_INPUT_SHAPE = (28, 28, 1)

_ROWS_AT_ONCE = 4_096

ONLY_DIGITS = Setting(
  'emnist_only_digits',
  bool,
  'Digits alone (10 classes); if false, letters too (62 classes).',
  default=True,
)

# Of 62 classes instead of 10: the same number of labels per class, and as many
# sets as classes.
_OF_LETTERS = {
  'server_examples': 620,
  'labelled_examples': 24_800,
  'sets_per_client': '62',
}


def load(
  data_dir: str | None, cache_dir: str, only_digits: bool = True
) -> Source:
  """Loads the examples of all writers, with client ids, in TFF's order."""
  content = DIGITS if only_digits else CHARACTERS
  check_files(data_dir)
  path = located = _path(data_dir)
  if not os.path.isfile(path):
    _download(path)
  cache = os.path.join(cache_dir, 'emnist', _identity(path))
  decoded_path = os.path.join(cache, f'{content.key}-{_DECODING}.npz')
  arrays = npz_files.kept(decoded_path)
  if arrays is None:
    if path.endswith('.lzma'):
      path = _unpack(path, os.path.join(cache, FILE_NAME))
    try:
      decoded = _decode(path, content)
    except _MissingSplit as error:
      if only_digits:
        raise
      raise ValueError(
        f"dataset='emnist': {located} holds no letters (no splits "
        f'{" and ".join(content.splits)}); take only_digits=True '
        "(--emnist_only_digits=true), or put TFF's own file there."
      ) from error
    arrays = npz_files.keep(decoded_path, decoded)
  return _as_source(arrays, content)


def check_files(data_dir: str | None) -> None:
  """Checks that the file exists or can be downloaded."""
  if not os.path.isfile(_path(data_dir)):
    downloads.check_reachable([_URL], 'emnist', _REMEDY)


def _path(data_dir: str | None) -> str:
  """Returns the path of the file, or the path to which it is downloaded."""
  if data_dir is not None:
    plain = os.path.join(data_dir, 'tff', FILE_NAME)
    for path in (plain, f'{plain}.lzma'):
      if os.path.isfile(path):
        return path
    raise ValueError(
      f"dataset='emnist': data_dir holds neither {plain} nor {plain}.lzma; put "
      'one of them there, or give no data_dir to let TFF download it.'
    )
  return os.path.join(os.path.expanduser('~'), '.tff', FILE_NAME)


def _download(path: str) -> None:
  """Lets TFF download to a folder beside `path`, then moves a sound file.

  TFF would write to the final name. After a broken download it would always
  take the remains for the complete file.
  """
  import tensorflow_federated as tff

  os.makedirs(os.path.dirname(path), exist_ok=True)
  staging = tempfile.mkdtemp(prefix='download-', dir=os.path.dirname(path))
  try:
    tff.simulation.datasets.emnist.load_data(
      only_digits=True, cache_dir=staging
    )
    downloaded = os.path.join(staging, FILE_NAME)
    with _open_database(downloaded, DIGITS.splits):
      os.replace(downloaded, path)
  except Exception as error:  # Network, lzma, sqlite, disk: TFF wraps none.
    raise ValueError(
      f"dataset='emnist': TFF could not download {FILE_NAME} ({error}); "
      f'{_REMEDY}.'
    ) from error
  finally:
    shutil.rmtree(staging)


def _identity(path: str) -> str:
  """Returns the name of the folder of the content in the cache."""
  if path.endswith('.lzma'):
    with open(path, 'rb') as stream:
      digest = hashlib.file_digest(stream, 'sha256')
  else:
    # Far larger: its path, size and time of change identify it.
    stat = os.stat(path)
    facts = f'{os.path.realpath(path)}\n{stat.st_size}\n{stat.st_mtime_ns}'
    digest = hashlib.sha256(facts.encode('utf-8', 'surrogateescape'))
  return digest.hexdigest()[:16]


def _unpack(archive: str, path: str) -> str:
  """Unpacks `archive` to `path` unless that exists; returns `path`."""
  if os.path.isfile(path):
    return path
  os.makedirs(os.path.dirname(path), exist_ok=True)
  try:
    with (
      whole_files.replacing(path) as target,
      open(archive, 'rb') as packed,
      tqdm.wrapattr(
        packed,
        'read',
        desc=f'Unpacking {os.path.basename(archive)}',
        total=os.path.getsize(archive),
        disable=None,
      ) as counted,
      lzma.open(counted) as unpacked,
    ):
      shutil.copyfileobj(unpacked, target, _CHUNK_BYTES)
  except (lzma.LZMAError, EOFError) as error:
    raise ValueError(
      f'{archive}: damaged or cut short ({error}); replace it.'
    ) from error
  return path


def _decode(path: str, content: Content) -> dict[str, np.ndarray]:
  """Reads both splits for the cache; `*_clients` are indices into `ids`."""
  with _open_database(path, content.splits) as connection:
    splits = [
      _read_split(connection, path, split, content.num_classes)
      for split in content.splits
    ]
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
  # As JSON, for ids are any strings.
  arrays['ids'] = np.frombuffer(json.dumps(ids).encode('utf-8'), np.uint8)
  return arrays


def _as_source(arrays: dict[str, np.ndarray], content: Content) -> Source:
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
    f'Federated EMNIST {content.title}: {writers:,} writers, '
    f'{found[0]:,} train and {found[1]:,} test examples'
  )
  if found != content.public_examples:
    whole_train, whole_test = content.public_examples
    title += (
      f', not the public {content.public_writers:,} writers, {whole_train:,} '
      f'and {whole_test:,}'
    )
  digest = arrays[npz_files.DIGEST].tobytes().hex()[:12]
  return Source(
    name='emnist',
    version=f'tff-emnist-{content.key}-{found[0]}+{found[1]}-{digest}',
    title=title,
    train=train,
    test=test,
    num_classes=content.num_classes,
    mean=(_MEAN,),
    stddev=(_STDDEV,),
    background=255,
  )


class _MissingSplit(ValueError):
  """A file in TFF's format has no examples of a split."""


@contextlib.contextmanager
def _open_database(
  path: str, splits: tuple[str, ...]
) -> Iterator[sqlite3.Connection]:
  """Opens a database in TFF's format; errors of SQLite become `ValueError`."""
  _check_complete(path)
  # Read-only, because SQLite would create a missing file.
  uri = f'{pathlib.Path(path).absolute().as_uri()}?mode=ro'
  try:
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
      for split in splits:
        clients = _clients_of(connection, split)
        if not clients:
          raise _MissingSplit(str(_unusable(path, f'no split {split}')))
        types = {(type(key), type(value)) for key, value in clients.items()}
        if types != {(str, int)} or not sum(clients.values()):
          raise _unusable(path, f'no examples by writer in the split {split}')
      yield connection
  except sqlite3.Error as error:
    raise _unusable(path, str(error)) from error


def _check_complete(path: str) -> None:
  """Checks that the file is as large as the database header declares."""
  size = os.path.getsize(path)
  with open(path, 'rb') as stream:
    header = stream.read(100)
  if len(header) < 100 or not header.startswith(b'SQLite format 3\0'):
    raise _unusable(path, f'{size} bytes, no sqlite header')
  (page_size,) = struct.unpack_from('>H', header, 16)
  changes, pages = struct.unpack_from('>II', header, 24)
  (pages_written_at,) = struct.unpack_from('>I', header, 92)
  declared = pages * (65_536 if page_size == 1 else page_size)
  # SQLite's rule: the page count is valid if the last change wrote it.
  if changes == pages_written_at and size < declared:
    raise _unusable(path, f'cut short, {size} of {declared} bytes')


def _unusable(path: str, found: str) -> ValueError:
  """Returns the error for a file that is not in TFF's format."""
  return ValueError(
    f"{path}: not TFF's federated EMNIST ({found}); delete or replace it."
  )


def _clients_of(
  connection: sqlite3.Connection, split: str
) -> collections.Counter[str]:
  """Returns the number of examples by client id, from the metadata."""
  rows = connection.execute(
    'SELECT client_id, num_examples FROM client_metadata WHERE split_name=?',
    (split,),
  )
  return collections.Counter(dict(rows))


def _read_split(
  connection: sqlite3.Connection, path: str, split: str, num_classes: int
) -> tuple[np.ndarray, np.ndarray, list[str]]:
  """Reads one split in one pass: images, labels and client ids."""
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
      batch_images, batch_labels = _parse(
        [row[1] for row in rows], path, num_classes
      )
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
      f'{split} holds {counts[client]} examples of the client {client!r}, but '
      f'its metadata say {declared[client]}',
    )
  return np.concatenate(images), np.concatenate(labels), clients


def _parse(
  protos: list[bytes], path: str, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
  """Parses `tf.train.Example`s into uint8 images and int32 labels."""
  import tensorflow as tf

  try:
    parsed = tf.io.parse_example(
      protos,
      {
        'pixels': tf.io.FixedLenFeature(_INPUT_SHAPE[:2], tf.float32),
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
  if labels.min() < 0 or labels.max() >= num_classes:
    raise _unusable(
      path, f'labels {labels.min()}..{labels.max()}, not 0..{num_classes - 1}'
    )
  images = np.rint(pixels * 255).astype(np.uint8)[..., np.newaxis]
  return images, labels.astype(np.int32)


SPEC = SourceSpec(
  name='emnist',
  description='federated EMNIST, native split by writer (TFF)',
  builder=load,
  check_files=check_files,
  settings=(ONLY_DIGITS,),
  defaults={
    **SMALL_CLIENTS,
    'partition': 'native',
    'labelled_examples': 4000,
    'total_rounds': 150,
    # One evaluation of the whole test split gives the accuracy of each client.
    'rounds_per_client_evaluation': 50,
  },
  derive=lambda values, given: (
    {} if given.get(ONLY_DIGITS.name, True) else _OF_LETTERS
  ),
  has_native_split=True,
)
