"""The packed client store: a partition's data in one file, built once.

In each round only the clients' indices cross into TFF, which reads the data
from this file. Its name is a hash of its content, so that several runs can
share one cache folder, also at the same time.

    parts           client 0, ..., client K - 1, the server set, the test set,
                    one TFRecord each: examples [n, ...], y int32 [n], true_y
                    int32 [n]
    header          JSON: key, num_classes, example_shape, example_type
    sizes           int64 [K + 2], the number of examples of each part
    tail            header length uint64, number of parts uint64, format
                    version uint32, magic 8 bytes
    sha256          32 bytes, of everything before

All numbers are little-endian. A reader needs a single seek for any client, and
TFRecord's own checksum guards each read. Inside TFF, readers return a sequence
of one element, all examples as a few tensors: a loop that slices one tensor is
faster than a dataset of single examples.
"""

import collections
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm
from absl import logging

from datasets.partition.assignment import Partition
from datasets.records import split_manifest
from datasets.records.split_manifest import AT_CLIENTS, DEALT, IN_SETS
from datasets.sources.source import UNKNOWN, Source, Split
from tff_ssl import compat

HIDDEN = UNKNOWN
MAGIC = b'FEDCSTOR'
VERSION = 2
_TAIL = struct.Struct('<QQI8s')
_DIGEST_BYTES = hashlib.sha256().digest_size
_RECORD_HEAD_BYTES = 12  # The record's length and the checksum of that.
_RECORD_FRAME_BYTES = _RECORD_HEAD_BYTES + 4  # The checksum of the content.
_LABEL_BYTES = 2 * np.dtype(np.int32).itemsize
_CHUNK_BYTES = 1 << 20

# The files that this process has verified: path -> identity at that time.
_verified = {}
_LOCK = 'client_stores.lock'
_TEMPORARY = re.compile(r'clients-[0-9a-f]{40}\.store\.\d+\.tmp')


class StoreError(ValueError):
  """A file is not a sound client store."""


@dataclasses.dataclass(frozen=True)
class Part:
  """The examples of a client, of the server or of the test set.

  Attributes:
    examples: The examples: `uint8 [n, H, W, C]`, or `float32 [n, F]`.
    y: `int32 [n]`, the labels that the process may see; -1 where hidden.
    true_y: `int32 [n]`, which a simulation knows; -1 where it does not.
  """

  examples: np.ndarray
  y: np.ndarray
  true_y: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class ClientStore:
  """A packed store: the content of the file and its layout.

  Attributes:
    key: The identity of the content, a sha256 in hexadecimal.
    input_shape: `(H, W, C)` of an image, or `(F,)` of a vector.
    input_type: The NumPy type of examples, `uint8` or `float32`.
    part_sizes: `int64 [K + 2]`, of the K clients, the server and the test set.
  """

  path: str
  key: str
  num_classes: int
  input_shape: tuple[int, ...]
  input_type: np.dtype
  part_sizes: np.ndarray

  @property
  def num_clients(self) -> int:
    """K, the number of clients."""
    return len(self.part_sizes) - 2

  @property
  def client_sizes(self) -> np.ndarray:
    """`int64 [K]`, the number of examples of each client."""
    return self.part_sizes[:-2]

  @property
  def input_bytes(self) -> int:
    """The size of one example without its labels."""
    return int(np.prod(self.input_shape)) * self.input_type.itemsize

  @property
  def record_starts(self) -> np.ndarray:
    """`int64 [K + 2]`, where the record of each part begins, in bytes."""
    return np.cumsum(self._record_sizes) - self._record_sizes

  @property
  def file_size(self) -> int:
    """The size of the whole file in bytes."""
    return int(self._record_sizes.sum()) + len(self.description) + _DIGEST_BYTES

  @property
  def _record_sizes(self) -> np.ndarray:
    example_bytes = self.input_bytes + _LABEL_BYTES
    return self.part_sizes * example_bytes + _RECORD_FRAME_BYTES

  @property
  def description(self) -> bytes:
    """The bytes between the parts and the sha256."""
    header = {
      'key': self.key,
      'num_classes': self.num_classes,
      'example_shape': list(self.input_shape),
      'example_type': self.input_type.str,
    }
    text = json.dumps(header, sort_keys=True).encode('ascii')
    sizes = self.part_sizes.astype('<i8').tobytes()
    tail = _TAIL.pack(len(text), len(self.part_sizes), VERSION, MAGIC)
    return text + sizes + tail


def _write_file(store: ClientStore, path: str, parts: Iterable[Part]):
  """Writes parts of the sizes in `store`; waits until they are on the disk."""
  try:
    with tf.io.TFRecordWriter(path) as writer:
      for part in parts:
        labels = np.concatenate([part.y, part.true_y]).astype('<i4')
        examples = part.examples.astype(store.input_type, copy=False)
        writer.write(examples.tobytes() + labels.tobytes())
  except tf.errors.OpError as error:
    raise OSError(f'Cannot write a client store: {error.message}') from error
  with open(path, 'ab+') as file:
    file.write(store.description)
    size = file.tell()
    file.write(_digest(file, size))
    file.flush()
    os.fsync(file.fileno())


def open_store(path: str | os.PathLike) -> ClientStore:
  """Opens a store after checking its whole content.

  A process reads the content once. Later calls only compare the file's size,
  time of change and inode.

  Raises:
    StoreError: If the file is no sound client store of this version.
  """
  path = os.path.abspath(path)
  with open(path, 'rb') as file:
    status = os.fstat(file.fileno())
    store = _read_description(file, path, status.st_size)
    identity = (status.st_size, status.st_mtime_ns, status.st_ino)
    if _verified.get(path) != identity:
      digest = _digest(file, status.st_size - _DIGEST_BYTES)
      if file.read() != digest:
        raise _unsound(path, 'is damaged (its checksum does not fit)')
      _verified[path] = identity
  return store


def read_numpy(store: ClientStore, part: int | str) -> Part:
  """Reads the part of a client in `[0, K)`, of `'server'` or of `'test'`."""
  # After the clients, as in `part_sizes`.
  named = {'server': store.num_clients, 'test': store.num_clients + 1}
  if part in named:
    index = named[part]
  elif part in range(store.num_clients):
    index = int(part)
  else:
    raise ValueError(
      f"part={part!r} does not exist: choose 'server', 'test' or a client in "
      f'[0, {store.num_clients}).'
    )
  count = int(store.part_sizes[index])
  size = count * (store.input_bytes + _LABEL_BYTES)
  with open(store.path, 'rb') as file:
    file.seek(int(store.record_starts[index]) + _RECORD_HEAD_BYTES)
    content = file.read(size)
  if len(content) != size:
    raise _unsound(store.path, 'has been cut')
  length = count * int(np.prod(store.input_shape))
  images = np.frombuffer(content, store.input_type, length)
  labels = np.frombuffer(content, '<i4', offset=images.nbytes)
  return Part(
    examples=images.reshape(count, *store.input_shape),
    y=labels[:count].astype(np.int32),
    true_y=labels[count:].astype(np.int32),
  )


def _read_description(file, path, file_size) -> ClientStore:
  end = file_size - _DIGEST_BYTES - _TAIL.size
  if end < 0:
    raise _unsound(path, 'is too short for a client store')
  file.seek(end)
  header_length, num_parts, version, magic = _TAIL.unpack(file.read(_TAIL.size))
  if magic != MAGIC:
    raise _unsound(path, 'is no client store, or truncated')
  if version != VERSION:
    raise _unsound(path, f'has format version {version} instead of {VERSION}')
  start = end - 8 * num_parts - header_length
  if start < 0 or num_parts < 2:
    raise _unsound(path, 'has a damaged tail')
  file.seek(start)
  try:
    header = json.loads(file.read(header_length))
    store = ClientStore(
      path=path,
      key=header['key'],
      num_classes=header['num_classes'],
      input_shape=tuple(header['example_shape']),
      input_type=np.dtype(header['example_type']),
      part_sizes=np.frombuffer(file.read(8 * num_parts), '<i8'),
    )
    complete = store.file_size == file_size
  except (ValueError, TypeError, KeyError) as error:
    raise _unsound(path, 'has a damaged header') from error
  if not complete:
    raise _unsound(path, 'is truncated, or has a damaged header')
  return store


def _digest(file, size: int) -> bytes:
  """The sha256 of the first `size` bytes; leaves the file just after them."""
  content = hashlib.sha256()
  file.seek(0)
  for start in range(0, size, _CHUNK_BYTES):
    content.update(file.read(min(_CHUNK_BYTES, size - start)))
  return content.digest()


def _unsound(path, what):
  return StoreError(f'{path} {what}: delete it and build it again.')


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
    'format': VERSION,
    'source': [source.name, source.version],
    'partition': partition.digest(),
    'labelled': labelled,
  }
  text = json.dumps(facts, sort_keys=True)
  key = hashlib.sha256(text.encode()).hexdigest()
  folder = os.path.abspath(cache_dir)
  path = os.path.join(folder, f'clients-{key[:40]}.store')
  os.makedirs(folder, exist_ok=True)
  if store := _open_if_sound(path, key):
    return store
  with _only_builder(folder):
    if store := _open_if_sound(path, key):
      return store
    if os.path.exists(path):
      logging.warning('%s is not a sound client store: building anew.', path)
    # Their writers held this lock: they have ended.
    for name in filter(_TEMPORARY.fullmatch, os.listdir(folder)):
      os.remove(os.path.join(folder, name))
    _write(path, key, source, partition, labelled)
  return open_store(path)


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


def _open_if_sound(path: str, key: str) -> ClientStore | None:
  try:
    store = open_store(path)
  except (FileNotFoundError, StoreError):
    return None
  return store if store.key == key else None


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


def _write(
  path: str, key: str, source: Source, partition: Partition, labelled: str
):
  server_examples = len(partition.server_indices)
  sizes = [*partition.client_sizes, server_examples, len(source.test.labels)]
  store = ClientStore(
    path=path,
    key=key,
    num_classes=source.num_classes,
    input_shape=source.training.examples.shape[1:],
    # Little-endian on every machine, as all of the file.
    input_type=source.training.examples.dtype.newbyteorder('<'),
    part_sizes=np.array(sizes, np.int64),
  )
  folder, needed = os.path.dirname(path), store.file_size
  free = shutil.disk_usage(folder).free
  if needed > free:
    raise OSError(
      errno.ENOSPC,
      f'The client store needs {needed / 2**20:.1f} MiB and {free / 2**20:.1f} '
      'MiB are free: free some, or choose another cache folder than',
      folder,
    )
  parts = tqdm.tqdm(
    _parts(source, partition, labelled),
    desc='Packing clients',
    total=len(sizes),
    disable=None,  # Unless stderr is a terminal.
  )
  temporary = f'{path}.{os.getpid()}.tmp'
  try:
    _write_file(store, temporary, parts)
    os.replace(temporary, path)
  finally:
    if os.path.exists(temporary):
      os.remove(temporary)


def _parts(source: Source, partition: Partition, labelled: str):
  shown = np.zeros(len(source.training.labels), bool)
  shown[split_manifest.known_to_clients(partition, labelled)] = True
  for client in range(partition.num_clients):
    indices = partition.client_indices(client)
    part = _part(source.training, indices, shown[indices])
    if labelled == IN_SETS:
      own = slice(*partition.offsets[client : client + 2])
      part = dataclasses.replace(part, y=np.int32(partition.set_ids[own]))
    yield part
  yield _part(source.training, partition.server_indices, True)
  yield _part(source.test, slice(None), True)


def _part(
  split: Split, indices: np.ndarray | slice, shown: np.ndarray | bool
) -> Part:
  true_y = split.labels[indices]
  return Part(
    examples=split.examples[indices],
    y=np.where(shown, true_y, np.int32(HIDDEN)),
    true_y=true_y,
  )


def element_spec(store: ClientStore) -> collections.OrderedDict:
  """Returns the `tf.TypeSpec` of a reader's element: x, y, true_y of `Part`."""
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
    lambda: _part_dataset(store, tf.constant(store.num_clients))
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
  return _part_dataset(store, index)


def _part_dataset(store, part):
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
