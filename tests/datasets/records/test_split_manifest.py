"""split.json and split.npz: what they say, and that damage is found."""

import dataclasses
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

from datasets.partition import partitions
from datasets.records import split_manifest

HOSTILE = [
  *('a|b', '../../etc/x', '/root', '..', '"quoted\'', 'line\nbreak'),
  *('nul\x00', 'nul', 'é', 'e\u0301', '\ud800', '', 'x' * 10_000),
]


@pytest.fixture(scope='module')
def source(source_of):
  ids = [HOSTILE[i % 13] for i in range(1797)]
  return source_of(load_digits().target, ids, name='digits', version='1797')


@pytest.fixture(scope='module')
def partition(source):
  return partitions.build(
    'r', source, num_clients=7, noniid_r=0.4, server_examples=100, seed=3
  )


def _equal(one, other):
  for field in dataclasses.fields(one):
    np.testing.assert_array_equal(
      getattr(one, field.name), getattr(other, field.name)
    )


def test_description(partition, source):
  said = split_manifest.describe(partition, labels_at='server')
  json.dumps(said)
  assert said['source'] == {
    'name': 'digits',
    'version': '1797',
    'train_examples': 1797,
  }
  assert said['partition'] == 'r'
  assert said['seed'] == 3
  assert said['arguments'] == {
    'num_clients': 7,
    'noniid_r': 0.4,
    'dirichlet_alpha': None,
    'min_client_examples': None,
    'server_examples': 100,
    'labelled_examples': 0,
    'server_writers': None,
  }
  sizes = [len(partition.client_indices(k)) for k in range(7)]
  assert said['examples'] == {
    'server': 100,
    'clients': 1697,
    'unused': 0,
    'smallest_client': min(sizes),
    'largest_client': max(sizes),
  }
  assert said['labels'] == {
    'labels_at': 'server',
    'labelled': 100,
    'unlabelled': 1697,
    'labelled_also_in_unlabelled': False,
  }
  at_clients = split_manifest.describe(partition, labels_at='clients')
  assert at_clients['labels']['labelled'] == 1797
  assert at_clients['labels']['unlabelled'] == 0
  for labels_at, message in (
    ('nowhere', "labels_at='nowhere'"),
    ('sets', "labels_at='sets'.*u_sets"),
  ):
    with pytest.raises(ValueError, match=message):
      split_manifest.describe(partition, labels_at=labels_at)


def test_unused_examples_are_counted(source):
  held = partitions.build(
    'native', source, num_clients=3, server_examples=10, seed=0
  )
  said = split_manifest.describe(held, labels_at='server')
  by_hand = 1797 - 10 - sum(len(held.client_indices(k)) for k in range(3))
  assert said['examples']['unused'] == by_hand > 0
  assert len(said['held_out_client_names']) >= 1


@pytest.fixture(scope='module')
def in_sets(source):
  return partitions.build(
    'u_sets', source, seed=9, num_clients=2, sets_per_client='10,12'
  )


def test_sets_are_described(in_sets):
  said = split_manifest.describe(in_sets, labels_at='sets')
  assert said['labels']['labelled'] == 0
  assert said['labels']['unlabelled'] == len(in_sets.examples)
  sets = said['sets']
  assert sets['sets_of_each_client'] == [10, 12]
  assert [len(own) for own in sets['examples_of_each_set']] == [10, 12]
  assert [sum(own) for own in sets['examples_of_each_set']] == list(
    in_sets.client_sizes
  )
  # Supervised processes see the classes of the same examples.
  said = split_manifest.describe(in_sets, labels_at='clients')
  assert said['labels']['labelled'] == len(in_sets.examples)


def test_an_example_in_several_sets_counts_once(source):
  repeated = partitions.build(
    'u_sets',
    source,
    seed=9,
    num_clients=2,
    sets_per_client=10,
    set_repeats='across_sets',
  )
  different = len(set(repeated.examples.tolist()))
  assert different < len(repeated.examples)
  said = split_manifest.describe(repeated, labels_at='clients')
  assert said['labels']['labelled'] == different
  assert said['examples']['clients'] == len(repeated.examples)
  assert said['examples']['unused'] == 1797 - different


def test_sets_survive_a_round_trip(in_sets, paths):
  split_manifest.write(in_sets, *paths, labels_at='sets')
  read, said = split_manifest.load(*paths)
  _equal(read, in_sets)
  assert isinstance(read, type(in_sets))
  assert read.digest() == in_sets.digest() == said['sha256']
  with np.load(paths[1]) as stored:
    arrays = dict(stored)
  for name in ('set_ids', 'class_priors'):
    changed = {**arrays, name: np.roll(arrays[name], 1, axis=0)}
    np.savez(paths[1], **changed)
    with pytest.raises(ValueError, match='damaged'):
      split_manifest.load(*paths)


@pytest.mark.parametrize(
  'name', [n for n, s in partitions.PARTITIONS.items() if not s.in_sets]
)
def test_round_trip(source, tmp_path, paths, name):
  arguments = {
    'r': {'num_clients': 7, 'noniid_r': 0.1},
    'dirichlet': {'num_clients': 7, 'dirichlet_alpha': 0.5},
  }.get(name, {})
  written = partitions.build(
    name, source, server_examples=50, seed=9, **arguments
  )
  split_manifest.write(written, *paths, labels_at='server')
  read, said = split_manifest.load(*paths)
  _equal(read, written)
  assert read.digest() == written.digest() == said['sha256']
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    'split.json',
    'split.npz',
  ]
  if name == 'native':
    assert set(read.client_names + read.held_out_client_names) == set(HOSTILE)


def test_equal_partitions_give_equal_bytes(partition, tmp_path):
  contents = []
  for folder in (tmp_path / 'one', tmp_path / 'two'):
    folder.mkdir()
    paths = folder / 'split.json', folder / 'split.npz'
    split_manifest.write(partition, *paths, labels_at='server')
    contents.append([path.read_bytes() for path in paths])
  assert contents[0] == contents[1]


def test_damage_is_found(partition, source, paths):
  split_manifest.write(partition, *paths, labels_at='server')
  sound = [path.read_bytes() for path in paths]
  rng = np.random.default_rng(0)
  mutations = []
  for which, content in enumerate(sound):
    mutations += [(which, b''), (which, b'x'), (which, content[:-30])]
    for at in rng.integers(len(content), size=40):
      flipped = bytearray(content)
      flipped[at] ^= 1 << rng.integers(8)
      mutations.append((which, bytes(flipped)))
  mutations.append((0, sound[0].replace(b'"seed": 3', b'"seed": 4')))
  mutations.append((0, sound[0].replace(b'client_00001', b'client_00009')))
  mutations.append((0, sound[0].replace(b'"unused": 0', b'"unused": 5')))
  mutations.append((0, b'[]'))
  # A kind of compression that does not exist, and an encrypted file.
  for at, bits in ((8, 0x63), (6, 0x01)):
    odd = bytearray(sound[1])
    directory = odd.find(b'PK\x01\x02')
    odd[at] |= bits
    odd[directory + at + 2] |= bits
    mutations.append((1, bytes(odd)))
  refused = 0
  for which, content in mutations:
    paths[which].write_bytes(content)
    try:
      read, said = split_manifest.load(*paths)
    except ValueError as error:
      assert str(paths[0]) in str(error)
      refused += 1
    else:  # Bits that mean nothing, as in a zip file's time stamps.
      _equal(read, partition)
      assert said == split_manifest.describe(partition, labels_at='server')
    paths[which].write_bytes(sound[which])
  assert refused >= 0.8 * len(mutations)


def test_files_of_two_partitions_do_not_mix(partition, source, tmp_path):
  other = partitions.build('pooled', source, server_examples=5, seed=1)
  for name, one in (('a', partition), ('b', other)):
    split_manifest.write(
      one,
      tmp_path / f'{name}.json',
      tmp_path / f'{name}.npz',
      labels_at='server',
    )
  with pytest.raises(ValueError, match='do not belong together'):
    split_manifest.load(tmp_path / 'a.json', tmp_path / 'b.npz')
  with pytest.raises(FileNotFoundError):
    split_manifest.load(tmp_path / 'a.json', tmp_path / 'c.npz')


class _Canary:
  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return open, (str(self._path), 'w')


def test_a_pickle_is_never_run(partition, tmp_path, paths):
  split_manifest.write(partition, *paths, labels_at='server')
  canary = tmp_path / 'canary'
  np.savez(
    paths[1],
    server_indices=partition.server_indices,
    examples=np.array([_Canary(canary)], object),
    offsets=partition.offsets,
  )
  with pytest.raises(ValueError, match='damaged'):
    split_manifest.load(*paths)
  assert not canary.exists()
