"""The packed store: what is written is read, and nothing else is."""

import dataclasses
import os
import pathlib
import time

import numpy as np
import pytest
import stores
import tensorflow as tf
import tensorflow_federated as tff

from datasets.partition import partitions
from datasets.sources.source import Split
from datasets.store import client_store


def _assert_part(read, images, y, true_y):
  assert read.examples.dtype == np.uint8
  assert read.y.dtype == read.true_y.dtype == np.int32
  np.testing.assert_array_equal(read.examples, images)
  np.testing.assert_array_equal(read.y, y)
  np.testing.assert_array_equal(read.true_y, true_y)


def _reader(store):
  return tf.function(
    lambda i: client_store.client_dataset(store, i).get_single_element()
  )


def _through_tff(reader):
  (element,) = list(reader())
  assert list(element) == ['x', 'y', 'true_y']
  x, y, true_y = (tensor.numpy() for tensor in element.values())
  return stores.Part(x, y, true_y)


def test_description_and_types(store, partition):
  assert store.num_clients == 13
  assert store.input_shape == (8, 8, 1)
  np.testing.assert_array_equal(store.client_sizes, partition.client_sizes)
  assert store.file_size == os.path.getsize(store.path)
  in_graph = []

  @tf.function
  def read(index):
    in_graph.append(client_store.client_dataset(store, index).element_spec)

  read(tf.constant(0))
  assert in_graph == [client_store.element_spec(store)]
  assert str(client_store.client_reader(store).type_signature) == (
    '(int32 -> <x=uint8[?,8,8,1],y=int32[?],true_y=int32[?]>*)'
  )
  assert str(client_store.server_reader(store).type_signature) == (
    '( -> <x=uint8[?,8,8,1],y=int32[?],true_y=int32[?]>*)'
  )


@pytest.mark.parametrize('labelled', ['server', 'clients'])
def test_round_trip(source, partition, build, labelled, tff_context):
  store = build(labelled)
  read_client = _reader(store)
  train = source.train
  assert len(partition.client_indices(4)) == 0
  for client in range(13):
    held = partition.client_indices(client)
    true_y = train.labels[held]
    y = np.full(len(held), -1) if labelled == 'server' else true_y
    tensors = read_client(tf.constant(client)).values()
    in_graph = stores.Part(*(tensor.numpy() for tensor in tensors))
    assert in_graph.examples.shape == (len(held), 8, 8, 1)
    for read in (stores.read(store, client), in_graph):
      _assert_part(read, train.examples[held], y, true_y)
  at_server = partition.server_indices
  labels = train.labels[at_server]
  for read in (
    stores.read(store, 'server'),
    _through_tff(client_store.server_reader(store)),
  ):
    _assert_part(read, train.examples[at_server], labels, labels)


@pytest.fixture(scope='module')
def in_sets(source):
  return partitions.build(
    'u_sets', source, seed=2, num_clients=3, sets_per_client='10,11,12'
  )


def test_sets_take_the_place_of_labels(source, in_sets, build):
  built = {name: build(name, partition=in_sets) for name in ('sets', 'clients')}
  assert built['sets'].key != built['clients'].key
  for client in range(3):
    own = slice(*in_sets.offsets[client : client + 2])
    held = in_sets.examples[own]
    true_y = source.train.labels[held]
    for labelled, y in (('sets', in_sets.set_ids[own]), ('clients', true_y)):
      part = stores.read(built[labelled], client)
      _assert_part(part, source.train.examples[held], y, true_y)


def test_sets_come_with_their_priors(in_sets, build, tff_context):
  store = build('sets', partition=in_sets)
  reader = client_store.client_reader(
    store, class_priors=in_sets.class_priors, set_shares=in_sets.set_shares
  )
  assert str(reader.type_signature) == (
    '(int32 -> <examples=<x=uint8[?,8,8,1],y=int32[?],true_y=int32[?]>*,'
    'context=<class_priors=float32[12,10],set_shares=float32[12]>>)'
  )
  read = reader(1)
  for name in ('class_priors', 'set_shares'):
    own = getattr(in_sets, name)[1]
    np.testing.assert_allclose(read['context'][name], own, rtol=1e-6)
  assert not read['context']['set_shares'][11]
  (examples,) = list(read['examples'])
  own = slice(*in_sets.offsets[1:3])
  np.testing.assert_array_equal(examples['y'], in_sets.set_ids[own])


def test_executed_by_tff(store, tff_context):
  read = client_store.client_reader(store)

  @tff.tensorflow.computation(read.type_signature.result)
  def count(data):
    return data.reduce(0, lambda n, e: n + tf.size(e['true_y']))

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def total(clients):
    read_all = tff.federated_map(read, clients)
    return tff.federated_sum(tff.federated_map(count, read_all))

  assert total([0, 3, 4, 4, 12]) == store.client_sizes[[0, 3, 12]].sum()
  (server,) = list(client_store.server_reader(store)())
  labels = stores.read(store, 'server').true_y
  assert server['y'].numpy().sum() == labels.sum()
  with pytest.raises(Exception, match=r'outside \[0, 13\)'):
    total([13])


@pytest.mark.parametrize('index', [-1, 13, 14, 15, 2**31 - 1, -(2**31)])
def test_an_index_outside_reads_nothing(store, index):
  outside = r'outside \[0, 13\)'
  with pytest.raises(tf.errors.InvalidArgumentError, match=outside):
    _reader(store)(tf.constant(index))


def test_b3_s4_hostile_ids_create_no_files(source, tmp_path):
  cache = tmp_path / 'deep' / 'cache'
  native = partitions.build('native', source, server_examples=0, seed=0)
  assert set(native.client_names) == set(source.train.client_ids)
  store = client_store.build(
    source, native, cache_dir=cache, labelled='clients'
  )
  for client, name in enumerate(native.client_names):
    # Not `client_ids == name`: numpy takes 'nul' and 'nul\\x00' for equal.
    theirs = [i for i, c in enumerate(source.train.client_ids) if c == name]
    read = stores.read(store, client)
    held = native.client_indices(client)
    np.testing.assert_array_equal(np.sort(held), theirs)
    labels = source.train.labels[held]
    _assert_part(read, source.train.examples[held], labels, labels)
  files = [path for path in tmp_path.rglob('*') if path.is_file()]
  assert sorted(path.parent for path in files) == [cache, cache]
  assert pathlib.Path(store.path) in files


def test_built_once(source, build):
  path = build().path
  written = os.stat(path)
  assert build().path == path
  assert os.stat(path).st_mtime_ns == written.st_mtime_ns
  newer = dataclasses.replace(source, version='1798')
  other, of_newer = (
    partitions.build('pooled', of, server_examples=5, seed=1)
    for of in (source, newer)
  )
  others = [build('clients'), build(partition=other)]
  others.append(build(source=newer, partition=of_newer))
  assert len({path, *(store.path for store in others)}) == 4


def test_bad_arguments(source, build, tmp_path):
  train, test = source.train, source.test
  for labelled, changes, message in (
    ('all', {}, "labelled='all'"),
    ('server', {'version': '2'}, "version '1797'.*version '2'"),
    (
      'server',
      {'train': Split(train.examples / 255, train.labels)},
      r'train.examples is float64\[1500',
    ),
    ('server', {'test': Split(test.examples[:, :4], test.labels)}, 'one shape'),
    ('server', {'test': Split(test.examples, test.labels[:-1])}, '296 labels'),
  ):
    with pytest.raises(ValueError, match=message):
      build(labelled, dataclasses.replace(source, **changes))
  assert not list(tmp_path.iterdir())


def test_the_time_to_read_does_not_grow_with_the_clients(source, build):
  rng = np.random.default_rng(0)
  milliseconds = {}
  for clients in (10, 1000):
    labels = (np.arange(clients * 76) % 10).astype(np.int32)
    images = rng.integers(0, 256, (len(labels), 28, 28, 1), dtype=np.uint8)
    train, test = (Split(images[:n], labels[:n]) for n in (len(labels), 10))
    many = dataclasses.replace(source, train=train, test=test)
    held = partitions.build(
      'r', many, num_clients=clients, noniid_r=0.0, server_examples=0, seed=0
    )
    store = build(source=many, partition=held)
    milliseconds[clients] = _milliseconds_per_client(store)
  assert milliseconds[1000] < 3 * milliseconds[10] + 0.5
  assert milliseconds[1000] < 5  # 0.3 on an idle machine.


def _milliseconds_per_client(store):
  @tf.function
  def read_all(indices):
    total = tf.constant(0)
    for index in indices:
      client = client_store.client_dataset(store, index).get_single_element()
      total += tf.size(client['true_y'])
    return total

  indices = np.random.default_rng(0).integers(store.num_clients, size=100)
  indices = tf.constant(indices, tf.int32)
  assert read_all(indices) == store.client_sizes[indices.numpy()].sum()
  times = []
  for _ in range(5):
    start = time.perf_counter()
    read_all(indices)
    times.append((time.perf_counter() - start) * 1000 / len(indices))
  return min(times)
