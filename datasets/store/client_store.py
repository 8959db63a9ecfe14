"""The packed client store: a partition's data in one file, built once.

In each round only the clients' indices cross into TFF. TFF reads the data from
this file (`store_readers`). The file's name is a hash of its content, so
several runs can share one cache folder, also at the same time.
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil

import numpy as np
import tqdm
from absl import logging

from datasets.partition.built_partition import Partition
from datasets.records.split_manifest import (
  AT_CLIENTS,
  DEALT,
  IN_SETS,
  check_labels_at,
  known_to_clients,
)
from datasets.sources.source import FORMS, UNKNOWN, Source, Split
from datasets.store import client_store_format
from datasets.store.client_store_format import (
  ClientStore,
  Part,
  StoreError,
  open_store,
  read_numpy,
)

__all__ = ['HIDDEN', 'ClientStore', 'Part', 'StoreError']
__all__ += ['build', 'open_store', 'read_numpy']

HIDDEN = UNKNOWN
_LOCK = 'client_stores.lock'
_TEMPORARY = re.compile(r'clients-[0-9a-f]{40}\.store\.\d+\.tmp')


def build(
  source: Source,
  partition: Partition,
  *,
  cache_dir: str | os.PathLike,
  labelled: str,
) -> ClientStore:
  """Returns the store of a partition, which it writes if it is absent.

  If two processes build at once, one waits for the other. A damaged file, or
  one of another format, is built again.

  Args:
    source: The data.
    partition: A partition of this source.
    cache_dir: The folder of the stores; created if absent.
    labelled: Which labels the process may see besides the server's. `'server'`
      hides those of the clients (`y` is -1). `'clients'` shows all of them.
      `'dealt'` shows those of the partition's `labelled_indices`. `'sets'`
      shows the set of each example as `y` instead.

  Raises:
    ValueError: If `labelled` is unknown or does not fit the partition, the
      partition is of another source, or the examples have no known form.
    OSError: If the folder cannot be written or the disk is too full.
  """
  check_labels_at('labelled', labelled, partition)
  _check_belongs(source, partition)
  if labelled == AT_CLIENTS:
    _check_all_known(source, partition)
  key = _key(source, partition, labelled)
  folder = os.path.abspath(cache_dir)
  path = os.path.join(folder, f'clients-{key[:40]}.store')
  os.makedirs(folder, exist_ok=True)
  store = _open_if_sound(path, key)
  if store is not None:
    return store
  with _only_builder(folder):
    store = _open_if_sound(path, key)
    if store is not None:
      return store
    if os.path.exists(path):
      logging.warning('%s is not a sound client store: building anew.', path)
    _remove_leftovers(folder)
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
  for name, split in (('train', source.training), ('test', source.test)):
    if (split.examples.dtype, split.examples.ndim) not in FORMS.values():
      raise ValueError(
        f'source.{name}.examples is {split.examples.dtype}'
        f'{list(split.examples.shape)}: give images, uint8 [N, H, W, C], or '
        'vectors, float32 [N, F].'
      )
    if len(split.examples) != len(split.labels):
      raise ValueError(
        f'source.{name} has {len(split.examples)} images and '
        f'{len(split.labels)} labels: give as many of each.'
      )
  shapes = source.training.examples.shape[1:], source.test.examples.shape[1:]
  types = source.training.examples.dtype, source.test.examples.dtype
  if types[0] != types[1]:
    raise ValueError(
      f'source.train is {types[0]} and source.test {types[1]}: give one type.'
    )
  if shapes[0] != shapes[1]:
    raise ValueError(
      f'source.train has images {shapes[0]} and source.test {shapes[1]}: give '
      'one shape.'
    )


def _check_all_known(source: Source, partition: Partition):
  labels = source.training.labels[partition.examples]
  unknown = np.count_nonzero(labels == UNKNOWN)
  if unknown:
    raise ValueError(
      f"{unknown:,} of the clients' images in {source.name} have no label, "
      f'and labelled={AT_CLIENTS!r} needs all: take the partition of '
      f'label_masks.keep_known with labelled={DEALT!r}, or choose a process '
      'that needs no labels at the clients.'
    )


def _key(source: Source, partition: Partition, labelled: str) -> str:
  facts = {
    'format': client_store_format.VERSION,
    'source': [source.name, source.version],
    'partition': partition.digest(),
    'labelled': labelled,
  }
  return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


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


def _remove_leftovers(folder: str):
  # Their writers held the lock that this process holds now: they have ended.
  for name in os.listdir(folder):
    if _TEMPORARY.fullmatch(name):
      os.remove(os.path.join(folder, name))


def _write(
  path: str,
  key: str,
  source: Source,
  partition: Partition,
  labelled: str,
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
  _check_free_space(path, store.file_size)
  parts = tqdm.tqdm(
    _parts(source, partition, labelled),
    desc='Packing clients',
    total=len(sizes),
    disable=None,  # Unless stderr is a terminal.
  )
  temporary = f'{path}.{os.getpid()}.tmp'
  try:
    client_store_format.write(store, temporary, parts)
    os.replace(temporary, path)
  finally:
    if os.path.exists(temporary):
      os.remove(temporary)


def _parts(source: Source, partition: Partition, labelled: str):
  shown = np.zeros(len(source.training.labels), bool)
  shown[known_to_clients(partition, labelled)] = True
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


def _check_free_space(path: str, needed: int):
  folder = os.path.dirname(path)
  free = shutil.disk_usage(folder).free
  if needed > free:
    raise OSError(
      errno.ENOSPC,
      f'The client store needs {needed / 2**20:.1f} MiB and {free / 2**20:.1f} '
      'MiB are free: free some, or choose another cache folder than',
      folder,
    )
