"""Masked labels: how many, which, and that nothing else depends on them."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from datasets.partition import client_labels, partitions
from datasets.records import split_manifest
from datasets.sources.source import Source, Split
from datasets.store import client_store

# Those of the paper, and all labels but one.
RATIOS = (0.0, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
NAMES = {
  'r': {'num_clients': 4, 'noniid_r': 0.4},
  'dirichlet': {'num_clients': 4, 'dirichlet_alpha': 1.0},
  'native': {},
  'pooled': {},
}


@pytest.fixture(scope='module')
def source():
  """200 examples of 10 classes, of 12 writers."""
  images = np.arange(200, dtype=np.uint32).view(np.uint8).reshape(-1, 2, 2, 1)
  writers = np.random.default_rng(2).integers(12, size=200)
  train = Split(
    images,
    (np.arange(200) % 10).astype(np.int32),
    np.array([f'w{writer:02d}' for writer in writers], object),
  )
  test = Split(images[:10], np.arange(10, dtype=np.int32))
  return Source('made', '1', '', train, test, 10, (0.5,), (0.5,), 0, False)


@pytest.fixture(scope='module')
def sized(source_of):
  """A native partition's source with clients of these sizes."""

  def build(sizes):
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return source_of(owners * 0, [f'w{owner:04d}' for owner in owners])

  return build


def labels_of(partition):
  """How many labels each client has, counted one by one."""
  known = set(partition.labelled_indices.tolist())
  return [
    sum(int(example) in known for example in partition.client_indices(client))
    for client in range(partition.num_clients)
  ]


@pytest.mark.parametrize('ratio', RATIOS)
def test_counts(sized, ratio):
  sizes = [1, 2, 9, 20, 50, 100, 132]
  by_hand = [min(int(ratio * n), n - 1) for n in sizes]
  counts = client_labels.num_masked(np.array(sizes, np.int32), ratio)
  assert counts.dtype == np.int64
  assert counts.tolist() == by_hand
  partition = partitions.build('native', sized(sizes), seed=0, mask_ratio=ratio)
  assert labels_of(partition) == np.subtract(sizes, by_hand).tolist()


def test_counts_worked_by_hand():
  counts = lambda ratio: client_labels.num_masked(
    np.array([[1, 9], [100, 132]]), ratio
  ).tolist()
  assert counts(0.8) == [[0, 7], [80, 105]]
  assert counts(0.99) == [[0, 8], [99, 130]]
  assert counts(1.0) == [[0, 8], [99, 131]]
  # A client without examples has none to hide.
  assert client_labels.num_masked(0, 0.5) == 0
  # Below 1 by one bit: the product is rounded to n.
  assert client_labels.num_masked(100, math.nextafter(1, 0)) == 99


@pytest.mark.parametrize('name', NAMES)
def test_masks_are_nested(source, name):
  hidden = set()
  for ratio in (0.0, 0.3, 0.8, 0.95, 1.0):
    held = partitions.build(
      name, source, seed=5, mask_ratio=ratio, **NAMES[name]
    )
    now = set(held.examples.tolist()) - set(held.labelled_indices.tolist())
    assert hidden <= now
    hidden = now
  assert labels_of(held) == [1] * held.num_clients


@pytest.mark.parametrize('name', NAMES)
def test_a_mask_changes_nothing_else(source, name):
  build = lambda **given: partitions.build(
    name, source, seed=5, server_examples=20, **NAMES[name], **given
  )
  plain, masked = build(), build(mask_ratio=0.5)
  for array in ('server_indices', 'examples', 'offsets'):
    np.testing.assert_array_equal(getattr(plain, array), getattr(masked, array))
  assert len(plain.labelled_indices) == 0
  assert 'mask_ratio' not in plain.arguments
  assert masked.arguments == {**plain.arguments, 'mask_ratio': 0.5}
  # The server's labels are not the clients'.
  assert not np.isin(masked.server_indices, masked.labelled_indices).any()


def test_a_seed_fixes_the_mask(source):
  # One partition, whatever the seed, but for the order of its examples.
  build = lambda seed: partitions.build(
    'pooled', source, seed=seed, mask_ratio=0.5
  )
  assert build(1).digest() == build(1).digest()
  shown = build(1).labelled_indices, build(2).labelled_indices
  assert 20 < len(np.intersect1d(*shown)) < 80


def test_each_example_is_masked_as_often(sized):
  held = [
    partitions.build('native', sized([3, 8]), seed=seed, mask_ratio=0.5)
    for seed in range(1000)
  ]
  shown = np.zeros(11, int)
  for partition in held:
    shown[partition.labelled_indices] += 1
  assert shown.sum() == 1000 * (2 + 4)
  # Of the clients with 3 and 8 examples, 2 and 4 are shown.
  expected = np.repeat([2000 / 3, 4000 / 8], [3, 8])
  assert stats.chisquare(shown, expected).pvalue > 1e-3


def test_partitions_without_a_mask_keep_digest_and_store(source, tmp_path):
  # The digest as it was before there were masks; the key is of the present
  # format of stores.
  digest = 'a9f2414d58d4de10e016151ff62ec3b65ca8fb945e7f40826edd5ae253acfad1'
  key = 'd0fb810940317e714420a3e20c511cb41acba26f92013668f18166748756b0bb'
  partition = partitions.build(
    'r', source, seed=3, num_clients=4, noniid_r=0.4, server_examples=20
  )
  assert partition.digest() == digest
  store = client_store.build(
    source, partition, cache_dir=tmp_path, labelled='clients'
  )
  assert store.key == key


def test_manifest_of_a_redrawn_mask(source, paths):
  partition = partitions.build('r', source, seed=5, **NAMES['r'])
  split_manifest.write(
    partition, *paths, labels_at='clients', redrawn_ratio=0.8
  )
  read, said = split_manifest.load(*paths)
  assert read.digest() == partition.digest()
  seen = sum(n - int(0.8 * n) for n in partition.client_sizes)
  assert said['labels'] == {
    'labels_at': 'clients',
    'labelled': 200,
    'unlabelled': 0,
    'labelled_also_in_unlabelled': False,
    'mask': 'redrawn',
    'mask_ratio': 0.8,
    'labelled_at_clients_in_a_pass': seen,
  }
  text = paths[0].read_text()
  for wrong in ('0.9', '8.8', '"0.8"', 'null'):
    paths[0].write_text(
      text.replace('"mask_ratio": 0.8', f'"mask_ratio": {wrong}')
    )
    with pytest.raises(ValueError, match='damaged'):
      split_manifest.load(*paths)
  with pytest.raises(ValueError, match="0.8 does not fit labels_at='server'"):
    split_manifest.describe(partition, labels_at='server', redrawn_ratio=0.8)


@pytest.mark.parametrize(
  'arguments, message',
  [
    (
      {'mask_ratio': -0.1},
      'mask_ratio must be a number between 0 and 1, but is -0.1',
    ),
    ({'mask_ratio': 1.01}, 'mask_ratio must be .* is 1.01'),
    ({'mask_ratio': math.nan}, 'mask_ratio must be .* is nan'),
    ({'mask_ratio': '0.5'}, "mask_ratio must be .* is '0.5'"),
    ({'mask_ratio': True}, 'mask_ratio must be .* is True'),
    (
      {'mask_ratio': 0.5, 'labelled_examples': 30},
      'mask_ratio=0.5 and labelled_examples=30 exclude each other',
    ),
  ],
)
def test_refusals(source, arguments, message, refusal):
  with refusal(match=message):
    partitions.build('r', source, seed=0, **NAMES['r'], **arguments)


def test_a_ratio_above_1_is_refused():
  with pytest.raises(ValueError, match='mask_ratio must be .* is 2.0'):
    client_labels.num_masked(5, 2.0)


def test_labels_that_there_are_make_the_mask(source):
  labels = source.train.labels.copy()
  labels[np.arange(200) % 3 > 0] = -1
  partly = dataclasses.replace(
    source, train=dataclasses.replace(source.train, labels=labels)
  )
  held = partitions.build('native', partly, seed=0)
  kept = client_labels.keep_known(held, labels)
  np.testing.assert_array_equal(kept.labelled_indices, np.arange(0, 200, 3))
  np.testing.assert_array_equal(kept.examples, held.examples)
  nobody = np.full(200, -1)
  with pytest.raises(ValueError, match='none of the .* 200 examples'):
    client_labels.keep_known(held, nobody)


def test_the_share_that_is_left():
  assert client_labels.hidden_share(0.1) == 0.9
  assert client_labels.LABELLED_FRACTION.parse(1.0) == 0
  for wrong in (0.0, 1.2):
    with pytest.raises(ValueError, match=f'labelled_fraction .* is {wrong}'):
      client_labels.hidden_share(wrong)


def test_which_labels_are_hidden_matters_where_some_are():
  assert '`mask_ratio=0`' in client_labels.MASK.why_unused({'mask_ratio': 0.0})
  assert client_labels.MASK.why_unused({'mask_ratio': 0.5}) is None
