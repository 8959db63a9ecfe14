"""Digits whose owners have hostile names, and stores of them."""

import dataclasses

import numpy as np
import pytest
from sklearn.datasets import load_digits

from datasets.partition import partitions
from datasets.sources.source import Source, Split
from datasets.store import client_store

_HOSTILE = [
  *('a|b', '../../escaped', '/tmp/escaped', '..', 'quote"\'', 'line\nbreak'),
  *('nul\x00', 'nul', 'x' * 10_000),
]


@pytest.fixture(scope='session')
def source():
  digits = load_digits()
  images = digits.images[..., np.newaxis].astype(np.uint8)
  labels = digits.target.astype(np.int32)
  ids = np.array([_HOSTILE[i % len(_HOSTILE)] for i in range(1500)], object)
  train = Split(images[:1500], labels[:1500], ids)
  test = Split(images[1500:], labels[1500:])
  return Source(
    '../digits', '1797', '', train, test, 10, (0.3,), (0.4,), 0, False
  )


@pytest.fixture(scope='session')
def partition(source):
  """Twelve clients, and client 4, who has no example."""
  built = partitions.build(
    'r', source, num_clients=12, noniid_r=0.5, server_examples=50, seed=2
  )
  sizes = np.insert(built.client_sizes, 4, 0)
  return dataclasses.replace(
    built,
    offsets=np.concatenate([[0], np.cumsum(sizes)]),
    client_names=(*built.client_names, 'nobody'),
  )


@pytest.fixture(scope='session')
def store(source, partition, tmp_path_factory):
  folder = tmp_path_factory.mktemp('cache')
  return client_store.build(
    source, partition, cache_dir=folder, labelled='server'
  )


@pytest.fixture
def build(source, partition, tmp_path):
  """Builds a store in the folder of the test."""

  def build_store(labelled='server', source=source, partition=partition):
    return client_store.build(
      source, partition, cache_dir=tmp_path, labelled=labelled
    )

  return build_store
