"""The packed client store as a file: layout, writing, and checked opening.

    parts           client 0, ..., client K - 1, the server set, the test set,
                    one TFRecord each: examples [n, ...], y int32 [n], true_y
                    int32 [n]
    header          JSON: key, num_classes, example_shape, example_type
    sizes           int64 [K + 2], the number of examples of each part
    tail            header length uint64, number of parts uint64, format
                    version uint32, magic 8 bytes
    sha256          32 bytes, of everything before

All numbers are little-endian. A reader needs a single seek for any client.
TFRecord's own checksum guards each read.
"""

import dataclasses
import hashlib
import json
import os
import struct
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

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
    path: Absolute path of the file.
    key: The identity of the content, a sha256 in hexadecimal.
    num_classes: d.
    input_shape: `(H, W, C)` of an image, or `(F,)` of a vector.
    input_type: The NumPy type of examples, `uint8` or `float32`.
    part_sizes: `int64 [K + 2]`, the number of examples of each part: the K
      clients, the server set, the test set.
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
  def server_part(self) -> int:
    """The index of the labelled server set among the parts."""
    return self.num_clients

  @property
  def test_part(self) -> int:
    """The index of the test set among the parts."""
    return self.num_clients + 1

  @property
  def input_bytes(self) -> int:
    """The size of one example without its labels."""
    return int(np.prod(self.input_shape)) * self.input_type.itemsize

  @property
  def record_starts(self) -> np.ndarray:
    """`int64 [K + 2]`, where the record of each part begins, in bytes."""
    return self._record_ends - self._record_sizes

  @property
  def file_size(self) -> int:
    """The size of the whole file in bytes."""
    return int(self._record_ends[-1]) + len(self.description) + _DIGEST_BYTES

  @property
  def _record_sizes(self) -> np.ndarray:
    example_bytes = self.input_bytes + _LABEL_BYTES
    return self.part_sizes * example_bytes + _RECORD_FRAME_BYTES

  @property
  def _record_ends(self) -> np.ndarray:
    return np.cumsum(self._record_sizes)

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


def write(store: ClientStore, path: str, parts: Iterable[Part]):
  """Writes a file and waits until it is on the disk.

  Args:
    store: The description of the content; its path is not used.
    path: The file to write.
    parts: The parts, in the order and of the sizes in `store`.

  Raises:
    OSError: If the file cannot be written.
  """
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

  Args:
    path: The file.

  Raises:
    StoreError: If the file is truncated, altered, of another format version, or
      no client store.
    FileNotFoundError: If it does not exist.
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
  """Reads one part.

  Args:
    store: The store.
    part: A client's index in `[0, K)`, `'server'` or `'test'`.

  Raises:
    ValueError: If there is no such part.
    StoreError: If the file has been cut since it was opened.
  """
  named = {'server': store.server_part, 'test': store.test_part}
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
