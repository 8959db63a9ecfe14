"""Opens, checks and reads the SQLite file of TFF's federated EMNIST.

TFF's `ClientData` reads one client at a time and builds SQL from client ids.
This module reads a split in one pass, and never writes to the file.
"""

import collections
import contextlib
import os
import pathlib
import sqlite3
import struct
from collections.abc import Iterator

import numpy as np
from tqdm import tqdm

INPUT_SHAPE = (28, 28, 1)

_COLUMNS = {
  'examples': {'split_name', 'client_id', 'serialized_example_proto'},
  'client_metadata': {'split_name', 'client_id', 'num_examples'},
}
_ROWS_AT_ONCE = 4_096


class MissingSplit(ValueError):
  """A file in TFF's format has no examples of a split."""


@contextlib.contextmanager
def open_database(
  path: str, splits: tuple[str, ...]
) -> Iterator[sqlite3.Connection]:
  """Opens a database in TFF's format; errors of SQLite become `ValueError`.

  It is opened read-only, because SQLite would create a missing file. Its size
  is checked first, because SQLite notices a missing end only when it reads it.

  Args:
    path: The file.
    splits: The splits that the file must have.

  Yields:
    The connection.

  Raises:
    MissingSplit: If the file lacks a split.
    ValueError: If the file is damaged or in another format.
  """
  _check_complete(path)
  uri = f'{pathlib.Path(path).absolute().as_uri()}?mode=ro'
  try:
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
      for table, wanted in _COLUMNS.items():
        rows = connection.execute(f'PRAGMA table_info({table})')
        if missing := wanted - {row[1] for row in rows}:
          raise unusable(
            path, f'the table {table} lacks the columns {sorted(missing)}'
          )
      for split in splits:
        clients = _clients_of(connection, split)
        if not clients:
          raise MissingSplit(str(unusable(path, f'no split {split}')))
        types = {(type(key), type(value)) for key, value in clients.items()}
        if types != {(str, int)} or not sum(clients.values()):
          raise unusable(path, f'no examples by writer in the split {split}')
      yield connection
  except sqlite3.Error as error:
    raise unusable(path, str(error)) from error


def _check_complete(path: str) -> None:
  """Checks that the file is as large as the database header declares."""
  size = os.path.getsize(path)
  with open(path, 'rb') as stream:
    header = stream.read(100)
  if len(header) < 100 or not header.startswith(b'SQLite format 3\0'):
    raise unusable(path, f'{size} bytes, no sqlite header')
  (page_size,) = struct.unpack_from('>H', header, 16)
  changes, pages = struct.unpack_from('>II', header, 24)
  (pages_written_at,) = struct.unpack_from('>I', header, 92)
  declared = pages * (65_536 if page_size == 1 else page_size)
  # SQLite's rule: the page count is valid if the last change wrote it.
  if changes == pages_written_at and size < declared:
    raise unusable(path, f'cut short, {size} of {declared} bytes')


def unusable(path: str, found: str) -> ValueError:
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


def read_split(
  connection: sqlite3.Connection, path: str, split: str, num_classes: int
) -> tuple[np.ndarray, np.ndarray, list[str]]:
  """Reads one split in one pass, in the order of the file.

  Args:
    connection: From `open_database`.
    path: The file, for messages.
    split: The split.
    num_classes: The number of classes; labels are below it.

  Returns:
    Images `uint8 [N, 28, 28, 1]`, labels `int32 [N]`, and the N client ids.

  Raises:
    ValueError: If the content differs from TFF's format.
  """
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
    raise unusable(
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
        'pixels': tf.io.FixedLenFeature(INPUT_SHAPE[:2], tf.float32),
        'label': tf.io.FixedLenFeature((), tf.int64),
      },
    )
  except (tf.errors.OpError, TypeError, ValueError) as error:
    raise unusable(
      path, 'an example that cannot be parsed as pixels [28, 28] and a label'
    ) from error
  pixels, labels = parsed['pixels'].numpy(), parsed['label'].numpy()
  # Negated, so that NaN is refused too.
  if not (np.all(pixels >= 0) and np.all(pixels <= 1)):
    raise unusable(path, 'a pixel outside 0..1')
  if labels.min() < 0 or labels.max() >= num_classes:
    raise unusable(
      path,
      f'labels {labels.min()}..{labels.max()}, not 0..{num_classes - 1}',
    )
  images = np.rint(pixels * 255).astype(np.uint8)[..., np.newaxis]
  return images, labels.astype(np.int32)
