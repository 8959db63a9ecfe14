"""Labels of a few examples at the clients: who has them, and how many."""

import numpy as np
import pytest
import stores

from datasets.partition import partitions
from datasets.records import partition_report, split_manifest
from datasets.store import client_store

NAMES = {
  'r': {'num_clients': 12, 'noniid_r': 0.4},
  'dirichlet': {'num_clients': 12, 'dirichlet_alpha': 1.0},
  'pooled': {},
}


@pytest.fixture(scope='module')
def source(digits_of):
  return digits_of(writers=40)


def labelled_counts(held, source):
  """Labelled examples per client and class."""
  shown = np.isin(held.examples, held.labelled_indices)
  labels = source.train.labels[held.examples[shown]]
  return partition_report.class_counts(
    labels, held.owners[shown], held.num_clients, 10
  )


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('labelled_examples', [1, 47, 120, 305])
def test_dealt_evenly_class_by_class(source, name, labelled_examples):
  build = lambda **given: partitions.build(
    name, source, seed=5, **NAMES[name], **given
  )
  dealt = build(labelled_examples=labelled_examples)
  at_server = build(server_examples=labelled_examples)
  # The same examples that the server would have.
  np.testing.assert_array_equal(
    dealt.labelled_indices, np.sort(at_server.server_indices)
  )
  assert len(dealt.server_indices) == 0
  np.testing.assert_array_equal(np.sort(dealt.examples), np.arange(1797))
  counts = labelled_counts(dealt, source)
  assert np.ptp(counts.sum(axis=1)) <= 1
  assert np.ptp(counts, axis=0).max() <= 1
  assert counts.sum() == labelled_examples
  # What they hold besides is what they would hold with labels at the server.
  for client in range(dealt.num_clients):
    rest = np.setdiff1d(dealt.client_indices(client), dealt.labelled_indices)
    np.testing.assert_array_equal(
      rest, np.sort(at_server.client_indices(client))
    )


def test_labelled_ones_do_not_stand_together(source):
  dealt = partitions.build('pooled', source, labelled_examples=300, seed=0)
  places = np.flatnonzero(np.isin(dealt.examples, dealt.labelled_indices))
  # Of 1,797 places at random: mean 898, deviation of the mean 27.
  assert abs(places.mean() - 898) < 4 * 27


def test_native_clients_label_their_own(source):
  dealt = partitions.build('native', source, labelled_examples=200, seed=5)
  plain = partitions.build('native', source, server_examples=0, seed=5)
  assert dealt.held_out_client_names == ()
  assert dealt.num_clients == 40
  np.testing.assert_array_equal(dealt.examples, plain.examples)
  counts = labelled_counts(dealt, source)
  assert counts.sum(axis=0).tolist() == [20] * 10
  # 40 writers with about 45 digits each: five labels each, but for chance.
  assert counts.sum(axis=1).min() >= 4 and counts.sum(axis=1).max() <= 6
  assert dealt.arguments['server_writers'] is None


def test_native_labels_by_hand(source_of):
  # Class 1 is writer b's alone: a has 2 labels of class 0, b has 2 of class 1.
  labels = np.array([0, 0, 0, 0, 1, 1])
  tiny = source_of(labels, list('aabbbb'))
  for seed in range(8):
    held = partitions.build('native', tiny, labelled_examples=4, seed=seed)
    owners = tiny.train.client_ids[held.labelled_indices]
    found = sorted(zip(owners, labels[held.labelled_indices], strict=True))
    assert found[-2:] == [('b', 1), ('b', 1)]
    # Class 0 comes first, one each, or second, when b has two labels already.
    assert found[:2] in ([('a', 0), ('b', 0)], [('a', 0), ('a', 0)])
  with pytest.raises(ValueError, match='labelled_examples=5 .*=4 or less'):
    for seed in range(8):
      partitions.build('native', tiny, labelled_examples=5, seed=seed)


@pytest.mark.parametrize('name', ['r', 'native'])
def test_a_seed_fixes_who_is_labelled(source, name):
  build = lambda seed: partitions.build(
    name, source, labelled_examples=60, seed=seed, **NAMES.get(name, {})
  )
  assert build(2).digest() == build(2).digest()
  assert build(2).digest() != build(3).digest()


@pytest.mark.parametrize(
  'name, arguments, message',
  [
    ('r', {'labelled_examples': -1}, 'labelled_examples must be .* is -1'),
    ('r', {'labelled_examples': 1797}, 'labelled_examples=1797 leaves none'),
    ('r', {'labelled_examples': 1750}, "labelled_examples=1750 .*class '8'"),
    (
      'r',
      {'labelled_examples': 10, 'server_examples': 20},
      'server_examples=20 and labelled_examples=10 exclude',
    ),
    (
      'native',
      {'labelled_examples': 10, 'server_writers': 'everyone'},
      "server_writers='everyone' and labelled_examples=10 exclude",
    ),
    ('native', {'labelled_examples': 1790}, 'labelled_examples=1790 .*class'),
  ],
)
def test_refusals(source, name, arguments, message, refusal):
  with refusal(match=message):
    partitions.build(name, source, seed=0, **NAMES.get(name, {}), **arguments)


@pytest.mark.parametrize(
  'given',
  [{'labelled_examples': 60}, {'mask_ratio': 0.8, 'server_examples': 20}],
)
def test_store_shows_these_labels_alone(source, tmp_path, given):
  held = partitions.build('r', source, seed=5, **given, **NAMES['r'])
  store = client_store.build(source, held, cache_dir=tmp_path, labelled='dealt')
  for client in range(12):
    part = stores.read(store, client)
    own = held.client_indices(client)
    truth = source.train.labels[own]
    np.testing.assert_array_equal(part.true_y, truth)
    known = np.isin(own, held.labelled_indices)
    np.testing.assert_array_equal(part.y, np.where(known, truth, -1))
    assert part.y.dtype == np.int32
  at_server = stores.read(store, 'server').y
  np.testing.assert_array_equal(
    np.sort(at_server), np.sort(source.train.labels[held.server_indices])
  )


@pytest.mark.parametrize(
  'given, labelled',
  [
    ({'labelled_examples': 60}, 'server'),
    ({'labelled_examples': 60}, 'clients'),
    ({'mask_ratio': 0.8}, 'clients'),
    ({'server_examples': 60}, 'dealt'),
  ],
)
def test_store_and_partition_must_agree(source, tmp_path, given, labelled):
  held = partitions.build('pooled', source, seed=5, **given)
  with pytest.raises(ValueError, match=f'labelled={labelled!r} does not fit'):
    client_store.build(source, held, cache_dir=tmp_path, labelled=labelled)


@pytest.mark.parametrize(
  'given', [{'labelled_examples': 60}, {'mask_ratio': 0.0}, {'mask_ratio': 0.8}]
)
def test_manifest_says_which_are_labelled(source, paths, given):
  held = partitions.build('r', source, seed=5, **given, **NAMES['r'])
  split_manifest.write(held, *paths, labels_at='dealt')
  read, said = split_manifest.load(*paths)
  shown = given.get('labelled_examples')
  mask = {}
  if shown is None:
    shown = sum(n - int(given['mask_ratio'] * n) for n in held.client_sizes)
    mask = {'mask': 'fixed', **given}
  assert said['labels'] == {
    'labels_at': 'dealt',
    'labelled': shown,
    'unlabelled': 1797 - shown,
    'labelled_also_in_unlabelled': False,
    **mask,
  }
  assert given.items() <= said['arguments'].items()
  with np.load(paths[1]) as arrays:
    np.testing.assert_array_equal(
      arrays['labelled_indices'], held.labelled_indices
    )
  assert read.digest() == held.digest()
  counts = split_manifest.labels_per_client(held, 'dealt')
  assert counts.tolist() == labelled_counts(held, source).sum(axis=1).tolist()
  with pytest.raises(ValueError, match="labels_at='server' does not fit"):
    split_manifest.describe(held, labels_at='server')
