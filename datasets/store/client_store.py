"""The packed client store: a partition's data in one file, built once.

In each round only the clients' indices cross into TFF, which reads the data
from this file. Its name is a hash of its content, so that several runs can
share one cache folder, also at the same time.

    parts           client 0, ..., client K - 1, the server set, one TFRecord
                    each: examples [n, ...], y int32 [n], true_y int32 [n]
    sha256          32 bytes, of the store's key and everything before

All numbers are little-endian. Shapes, types and sizes stand in no header: only
whoever has the data set and the partition, and so knows them, opens the file. A
reader needs a single seek for any client, and TFRecord's own checksum guards
each read. Inside TFF, readers return a sequence of one element, all examples as
a few tensors: a loop that slices one tensor is faster than a dataset of single
examples.
"""

import collections
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm
from absl import logging

from datasets.partition.assignment import Partition
from datasets.records import split_manifest
from datasets.records.split_manifest import AT_CLIENTS, DEALT, IN_SETS
from datasets.sources.source import UNKNOWN, Source
from tff_ssl import compat

HIDDEN = UNKNOWN
# Change it when the layout changes: files are named by it.
_FORMAT = 3
_DIGEST_BYTES = hashlib.sha256().digest_size
_RECORD_HEAD_BYTES = 12  # The record's length and the checksum of that.
_RECORD_FRAME_BYTES = _RECORD_HEAD_BYTES + 4  # The checksum of the content.
_LABEL_BYTES = 2 * np.dtype(np.int32).itemsize
_CHUNK_BYTES = 1 << 20

# The files that this process has verified: path -> identity at that time.
_verified = {}
_LOCK = 'client_stores.lock'
_TEMPORARY = re.compile(r'clients-[0-9a-f]{40}\.store\.\d+\.tmp')

# Examples, the labels `y` that the process may see, and `true_y`, which a
# simulation knows; -1 where a label is hidden, or unknown.
_Part = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class ClientStore:
  """A packed store: where its file is, what it holds, and its layout.

  Attributes:
    key: The identity of the content, a sha256 in hexadecimal.
    input_shape: `(H, W, C)` of an image, or `(F,)` of a vector.
    input_type: The NumPy type of examples, `uint8` or `float32`.
    part_sizes: `int64 [K + 1]`, the examples of the K clients and the server.
  """

  path: str
  key: str
  input_shape: tuple[int, ...]
  input_type: np.dtype
  part_sizes: np.ndarray

  @property
  def num_clients(self) -> int:
    """K, the number of clients."""
    return len(self.part_sizes) - 1

  @property
  def client_sizes(self) -> np.ndarray:
    """`int64 [K]`, the number of examples of each client."""
    return self.part_sizes[:-1]

  @property
  def input_bytes(self) -> int:
    """The size of one example without its labels."""
    return int(np.prod(self.input_shape)) * self.input_type.itemsize

  @property
  def record_starts(self) -> np.ndarray:
    """`int64 [K + 1]`, where the record of each part begins, in bytes."""
    return np.cumsum(self._record_sizes) - self._record_sizes

  @property
  def file_size(self) -> int:
    """The size of the whole file in bytes."""
    return int(self._record_sizes.sum()) + _DIGEST_BYTES

  @property
  def _record_sizes(self) -> np.ndarray:
    example_bytes = self.input_bytes + _LABEL_BYTES
    return self.part_sizes * example_bytes + _RECORD_FRAME_BYTES

  def is_sound(self) -> bool:
    """Returns whether the file is there, whole and of this content.

    A process reads the content once. Later calls only compare the file's size,
    time of change and inode.
    """
    try:
      with open(self.path, 'rb') as file:
        status = os.fstat(file.fileno())
        identity = (self.key, status.st_size, status.st_mtime_ns, status.st_ino)
        if _verified.get(self.path) == identity:
          return True
        sound = status.st_size == self.file_size
        sound = sound and self._digest(file) == file.read()
    except FileNotFoundError:
      return False
    if sound:
      _verified[self.path] = identity
    return sound

  def _digest(self, file) -> bytes:
    """Returns the sha256 of key and parts; leaves the file just after them."""
    content = hashlib.sha256(self.key.encode())
    size = self.file_size - _DIGEST_BYTES
    file.seek(0)
    for start in range(0, size, _CHUNK_BYTES):
      content.update(file.read(min(_CHUNK_BYTES, size - start)))
    return content.digest()


def build(
  source: Source,
  partition: Partition,
  *,
  cache_dir: str | os.PathLike,
  labelled: str,
) -> ClientStore:
  """Returns the store of a partition, which it writes if it is absent.

  `labelled` says which labels the process may see besides the server's:
  `'server'` hides those of the clients (`y` is -1), `'clients'` shows all,
  `'dealt'` the partition's `labelled_indices`. `'sets'` shows the set of each
  example as `y` instead.
  """
  split_manifest.check_labels_at('labelled', labelled, partition)
  _check_belongs(source, partition)
  labels = source.training.labels[partition.examples]
  if labelled == AT_CLIENTS and (unknown := np.sum(labels == UNKNOWN)):
    raise ValueError(
      f"{unknown:,} of the clients' images in {source.name} have no label, "
      f'and labelled={AT_CLIENTS!r} needs all: take the partition of '
      f'client_labels.keep_known with labelled={DEALT!r}, or choose a process '
      'that needs no labels at the clients.'
    )
  facts = {
    'format': _FORMAT,
    'source': [source.name, source.version],
    'partition': partition.digest(),
    'labelled': labelled,
  }
  text = json.dumps(facts, sort_keys=True)
  key = hashlib.sha256(text.encode()).hexdigest()
  folder = os.path.abspath(cache_dir)
  os.makedirs(folder, exist_ok=True)
  store = ClientStore(
    path=os.path.join(folder, f'clients-{key[:40]}.store'),
    key=key,
    input_shape=source.training.examples.shape[1:],
    # Little-endian on every machine, as all of the file.
    input_type=source.training.examples.dtype.newbyteorder('<'),
    part_sizes=np.array(
      [*partition.client_sizes, len(partition.server_indices)], np.int64
    ),
  )
  if store.is_sound():
    return store
  with _only_builder(folder):
    if store.is_sound():
      return store
    if os.path.exists(store.path):
      logging.warning(
        '%s is not a sound client store: building anew.', store.path
      )
    # Their writers held this lock: they have ended.
    for name in filter(_TEMPORARY.fullmatch, os.listdir(folder)):
      os.remove(os.path.join(folder, name))
    _write(store, _parts(source, partition, labelled))
  return store


def _check_belongs(source: Source, partition: Partition):
  ours = (source.name, source.version, len(source.training.labels))
  theirs = (
    partition.source_name,
    partition.source_version,
    partition.num_train,
  )
  if ours != theirs:
    raise ValueError(
      f'partition is of {theirs[0]!r} version {theirs[1]!r} with {theirs[2]} '
      f'examples, source is {ours[0]!r} version {ours[1]!r} with {ours[2]}: '
      'build the partition from this source.'
    )


@contextlib.contextmanager
def _only_builder(folder: str):
  """Holds the folder's lock, which the system frees if the process dies."""
  with open(os.path.join(folder, _LOCK), 'ab') as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      logging.info('Waiting for a process that builds a store in %s.', folder)
      fcntl.flock(lock, fcntl.LOCK_EX)
    yield


def _write(store: ClientStore, parts: Iterable[_Part]) -> None:
  folder, needed = os.path.dirname(store.path), store.file_size
  free = shutil.disk_usage(folder).free
  if needed > free:
    raise OSError(
      errno.ENOSPC,
      f'The client store needs {needed / 2**20:.1f} MiB and {free / 2**20:.1f} '
      'MiB are free: free some, or choose another cache folder than',
      folder,
    )
  progress = tqdm.tqdm(
    parts,
    desc='Packing clients',
    total=len(store.part_sizes),
    disable=None,  # Unless stderr is a terminal.
  )
  temporary = f'{store.path}.{os.getpid()}.tmp'
  try:
    with tf.io.TFRecordWriter(temporary) as writer:
      for examples, *labels in progress:
        examples = examples.astype(store.input_type, copy=False)
        labels = np.concatenate(labels).astype('<i4')
        writer.write(examples.tobytes() + labels.tobytes())
    with open(temporary, 'rb+') as file:
      file.write(store._digest(file))
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, store.path)
  except tf.errors.OpError as error:
    raise OSError(f'Cannot write a client store: {error.message}') from error
  finally:
    if os.path.exists(temporary):
      os.remove(temporary)


def _parts(
  source: Source, partition: Partition, labelled: str
) -> Iterator[_Part]:
  """Yields the parts of the clients, and then that of the server."""
  examples, labels = source.training.examples, source.training.labels
  known = split_manifest.known_to_clients(partition, labelled)
  shown = np.isin(partition.examples, known)
  y = np.where(shown, labels[partition.examples], HIDDEN)
  if labelled == IN_SETS:
    y = partition.set_ids
  for start, end in itertools.pairwise(partition.offsets):
    held = partition.examples[start:end]
    yield examples[held], y[start:end], labels[held]
  server = partition.server_indices
  yield examples[server], labels[server], labels[server]


def element_spec(store: ClientStore) -> collections.OrderedDict:
  """Returns the `tf.TypeSpec` of a reader's element: x, y and true_y."""
  return collections.OrderedDict(
    x=tf.TensorSpec([None, *store.input_shape], store.input_type.type),
    y=tf.TensorSpec([None], tf.int32),
    true_y=tf.TensorSpec([None], tf.int32),
  )


def client_reader(
  store: ClientStore, **constants: np.ndarray
) -> compat.Computation:
  """Returns `(int32 -> E*)`, from an index to data of `element_spec`, E.

  With constants of all clients, such as `class_priors` `[K, M, d]` where `y` is
  a set, it is `(int32 -> <examples=E*, context=<class_priors=float32[M,d]>>)`.
  """

  @tff.tensorflow.computation(tf.int32)
  def read_client(index):
    examples = client_dataset(store, index)
    if not constants:
      return examples
    context = collections.OrderedDict(
      (name, tf.constant(of_all, tf.float32)[index])
      for name, of_all in constants.items()
    )
    return collections.OrderedDict(examples=examples, context=context)

  return read_client


def server_reader(store: ClientStore) -> compat.Computation:
  """Returns `( -> E*)`, which reads the server's labelled examples."""
  return tff.tensorflow.computation(
    lambda: part_dataset(store, tf.constant(store.num_clients))
  )


def client_dataset(store: ClientStore, index: tf.Tensor) -> tf.data.Dataset:
  """Returns the one-element dataset of a client, for use in TensorFlow code."""
  index = tf.convert_to_tensor(index, tf.int32)
  in_range = tf.debugging.Assert(
    tf.logical_and(index >= 0, index < store.num_clients),
    [f'The client index is outside [0, {store.num_clients}):', index],
  )
  # TFF cuts the graph out by its outputs: an assertion that is not on the way
  # to the data would be left out.
  with tf.control_dependencies([] if in_range is None else [in_range]):
    index = tf.identity(index)
  return part_dataset(store, index)


def part_dataset(store: ClientStore, part: tf.Tensor) -> tf.data.Dataset:
  """As `client_dataset`, where K is the server; other numbers are undefined."""
  count = tf.constant(store.part_sizes, tf.int64)[part]
  # The one op that reads a TFRecord from anywhere in a file; unbuffered,
  # because one is read. Such a dataset cannot go from one TFF computation to
  # the next (TensorFlow 2.14 serialises it without its offset), so the data
  # are read here and go on as tensors.
  records = tf.data.experimental.from_variant(
    tf.raw_ops.TFRecordDatasetV2(
      filenames=store.path,
      compression_type='',
      buffer_size=0,
      byte_offsets=tf.constant(store.record_starts, tf.int64)[part],
    ),
    tf.TensorSpec([], tf.string),
  )
  record = records.take(1).get_single_element()
  label_start = count * store.input_bytes
  examples = tf.io.decode_raw(
    tf.strings.substr(record, tf.zeros_like(label_start), label_start),
    store.input_type.type,
  )
  labels = tf.io.decode_raw(
    tf.strings.substr(record, label_start, -1), tf.int32
  )
  return tf.data.Dataset.from_tensors(
    collections.OrderedDict(
      x=tf.reshape(examples, [-1, *store.input_shape]),
      y=labels[:count],
      true_y=labels[count:],
    )
  )
