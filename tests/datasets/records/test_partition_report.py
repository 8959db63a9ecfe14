"""What is said of a partition and of the server's labels."""

import dataclasses
import re

import numpy as np
import pytest

from datasets.partition import partitions
from datasets.records import partition_report


@pytest.fixture
def made(source_of):
  """A function to 1,200 examples, of so many writers if there are owners."""

  def build(num_classes, owners=None):
    ids = owners and [f'w{i % owners}' for i in range(1200)]
    return source_of(np.arange(1200) // 60 % num_classes, ids)

  return build


def said(name, source, **arguments):
  partition = partitions.build(name, source, seed=0, **arguments)
  return partition_report.lines(source, partition)


def test_native_clients(made):
  choice, labels, held_out = said(
    'native', made(4, owners=60), server_examples=22
  )
  assert 'native: each owner of examples is one client' in choice
  assert 'client_ids' in choice and '--partition=r' in choice
  # 22 = 5 + 5 + 6 + 6 labels; a tenth of 60 writers is 6.
  assert labels == (
    'The server has 22 labels, 5 to 6 of each of the 4 classes, from 6 of 60 '
    'clients.'
  )
  assert held_out == (
    '6 of 60 clients are held out for the server (--server_writers): 98 other '
    'examples of theirs are not used.'
  )


@pytest.mark.parametrize(
  'writers, who', [('held_out', 'from [12] of 60'), ('everyone', 'keep their')]
)
def test_few_labels_of_a_class_are_warned_of(made, writers, who):
  _, labels, warning, *_ = said(
    'native',
    made(5, owners=60),
    server_examples=20,
    server_writers=writers,
  )
  assert '4 of each of the 5 classes' in labels
  assert re.search(who, labels)
  assert warning.startswith('Warning: the server has fewer than 5 labels')
  assert '--server_examples' in warning


@pytest.mark.parametrize(
  'name, arguments',
  [
    ('pooled', {}),
    ('r', {'num_clients': 4, 'noniid_r': 0.0}),
    ('dirichlet', {'num_clients': 4, 'dirichlet_alpha': 1.0}),
  ],
)
def test_labels_from_the_pool(made, name, arguments):
  choice, labels = said(name, made(4), server_examples=20, **arguments)
  assert (
    choice == f'Partition {name}: {partitions.PARTITIONS[name].description}.'
  )
  assert '5 of each of the 4 classes, drawn from the pool' in labels
  choice, _ = said(name, made(4, owners=60), server_examples=20, **arguments)
  assert '(client_ids) are not used; --partition=native makes' in choice


def test_owners_who_take_no_part_are_told(made):
  source = made(4, owners=60)
  choice, *_ = said('native', source, server_examples=20, num_clients=7)
  assert (
    '7 of 55 take part (--num_clients); the 960 examples of the others'
    in choice
  )


def test_labels_of_one_owner_are_told(made):
  source = made(4, owners=3)
  _, labels, held_out = said('native', source, server_examples=20)
  assert 'from 1 of 3 clients' in labels
  assert held_out.startswith('1 of 3 clients is held out for the server')
  assert '380 other examples' in held_out
  assert '--server_writers=everyone draws the labels from all' in held_out


def test_without_server_labels_nothing_is_said_of_them(made):
  assert len(said('pooled', made(4), server_examples=0)) == 1


def test_many_owners_held_out_are_warned_of(made):
  """Each of 8 owners has one label in ten: few have ten of a class."""
  source = made(4, owners=8)
  labels = np.where(np.arange(1200) % 10 > 0, -1, source.train.labels)
  train = dataclasses.replace(source.train, labels=labels.astype(np.int32))
  source = dataclasses.replace(source, train=train)
  _, labels, warning = said('native', source, server_examples=80)
  held_out = int(re.search(r'from (\d) of 8 clients', labels)[1])
  assert held_out >= 2
  assert warning == (
    f'Warning: {held_out} of 8 clients are held out for the server '
    f'(--server_writers): {held_out * 150 - 80} other examples of theirs are '
    'not used; lower --server_examples, or give --server_writers=everyone.'
  )
  everyone = said(
    'native', source, server_examples=80, server_writers='everyone'
  )
  assert not any('held out' in line for line in everyone)
