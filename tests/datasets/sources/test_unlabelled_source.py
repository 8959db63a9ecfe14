"""A source with training images that nobody has labelled."""

import dataclasses

import numpy as np
import pytest
import stores

from datasets.partition import partitions
from datasets.sources.source import Source, Split
from datasets.store import client_store


@pytest.fixture(scope='module')
def source():
  """100 images of 4 classes and 900 without a label, in mixed order."""
  labels = np.concatenate([np.arange(100) % 4, np.full(900, -1)])
  labels = np.random.default_rng(0).permutation(labels).astype(np.int32)
  images = np.arange(1000, dtype=np.uint32).view(np.uint8).reshape(-1, 2, 2, 1)
  ids = np.array([f'w{i % 20:02d}' for i in range(1000)], object)
  train = Split(images, labels, ids)
  test = Split(images[:4], np.arange(4, dtype=np.int32))
  return Source('half', '1', '', train, test, 4, (0.5,), (0.5,), 0, False)


IID = {'num_clients': 8, 'noniid_r': 0, 'seed': 1}


def test_iid_clients_of_equal_size(source):
  held = partitions.build('r', source, **IID, server_examples=40)
  labels = source.train.labels
  assert np.bincount(labels[held.server_indices]).tolist() == [10] * 4
  given = np.concatenate([held.server_indices, held.examples])
  np.testing.assert_array_equal(np.sort(given), np.arange(1000))
  assert held.client_sizes.tolist() == [120] * 8
  # Of each client's 120, 60 / 960 have a label: 7.5 on average.
  known = [np.sum(labels[held.client_indices(k)] >= 0) for k in range(8)]
  assert sum(known) == 60 and max(known) < 20


@pytest.mark.parametrize('name', ['pooled', 'native'])
def test_other_partitions_draw_the_server_set_from_the_labelled(source, name):
  held = partitions.build(name, source, server_examples=12, seed=1)
  at_server = source.train.labels[held.server_indices]
  assert np.bincount(at_server).tolist() == [3] * 4


def test_there_is_no_mask_of_labels_that_nobody_knows(source):
  with pytest.raises(ValueError, match="mask_ratio=0.5 .* 900 of .*'half'"):
    partitions.build('r', source, **IID, mask_ratio=0.5)


def test_dealt_labels_are_known_ones(source):
  held = partitions.build('r', source, **IID, labelled_examples=40)
  assert source.train.labels[held.labelled_indices].min() >= 0
  assert held.client_sizes.tolist() == [125] * 8


@pytest.mark.parametrize(
  'name, arguments',
  [
    ('r', {'noniid_r': 0.1, 'num_clients': 4}),
    ('dirichlet', {'dirichlet_alpha': 1.0, 'num_clients': 4}),
  ],
)
def test_partitions_by_label_are_refused(source, name, arguments, refusal):
  with refusal('900 training images', '--noniid_r=0'):
    partitions.build(name, source, server_examples=12, seed=1, **arguments)


def test_more_labels_than_there_are(source, refusal):
  with refusal('server_examples=104', 'has 25', '=100 or less'):
    partitions.build('pooled', source, server_examples=104, seed=1)


def test_other_negative_labels_are_refused(source):
  train = dataclasses.replace(source.train, labels=source.train.labels - 1)
  with pytest.raises(ValueError, match='from -2 to 2'):
    dataclasses.replace(source, train=train)


def test_store_keeps_unknown_labels_unknown(source, tmp_path):
  held = partitions.build('pooled', source, server_examples=40, seed=1)
  store = client_store.build(
    source, held, cache_dir=tmp_path, labelled='server'
  )
  part = stores.read(store, 0)
  assert (part.y == -1).all()
  np.testing.assert_array_equal(part.true_y, source.train.labels[held.examples])
  assert stores.read(store, 'server').y.min() >= 0
  with pytest.raises(ValueError, match="900 of the clients' images"):
    client_store.build(source, held, cache_dir=tmp_path, labelled='clients')
