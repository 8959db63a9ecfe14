"""Examples that all clients share, by Zhao et al.'s definition."""

import dataclasses

import numpy as np
import pytest

from datasets.partition import client_labels, partitions
from datasets.records import partition_report, split_manifest
from datasets.sources import catalogue


@pytest.fixture(scope='module')
def digits(tmp_path_factory):
  folder = str(tmp_path_factory.mktemp('cache'))
  return catalogue.load('digits', data_dir=None, cache_dir=folder)


def _build(source, **changes):
  return partitions.build(
    'r',
    source,
    **{
      'seed': 3,
      'noniid_r': 1.0,
      'num_clients': 10,
      'shared_fraction': 0.25,
      'shared_share': 1.0,
      **changes,
    },
  )


@pytest.mark.parametrize(
  'share, fraction', [(1.0, 0.05), (1.0, 0.25), (0.5, 1)]
)
def test_sizes_and_copies(digits, share, fraction):
  held = _build(digits, shared_fraction=fraction, shared_share=share)
  shared, labels = held.server_indices, digits.train.labels
  # beta is |G| over what clients hold beside it, up to one of each class; the
  # partition may drop a few.
  own = len(np.setdiff1d(held.examples, shared))
  assert len(shared) / own == pytest.approx(fraction, abs=0.05)
  assert len(set(np.bincount(labels[shared]).tolist())) == 1
  drawn = []
  for client in range(10):
    mine = held.client_indices(client)
    assert len(np.unique(mine)) == len(mine)
    copies = np.intersect1d(mine, shared)
    assert len(copies) == int(share * len(shared))
    drawn.append(frozenset(copies.tolist()))
    # Nobody else has what is not shared.
    others = np.delete(
      held.examples, np.s_[slice(*held.offsets[client : client + 2])]
    )
    assert not np.isin(np.setdiff1d(mine, shared), others).any()
  assert (len(set(drawn)) == 1) == (share == 1)
  assert (
    _build(digits, shared_fraction=fraction, shared_share=share).digest()
    == held.digest()
  )


# One class for each client: R is 1 before. The second is probably the .29 that
# Zhang et al. print in Table 4.
@pytest.mark.parametrize('fraction, printed', [(0.05, 0.67), (0.25, 0.286)])
def test_noniidness_falls_as_derived(digits, fraction, printed):
  held = _build(digits, shared_fraction=fraction)
  n, shared = held.client_sizes.mean(), len(held.server_indices)
  n -= shared
  labels = digits.train.labels[held.examples]
  counts = partition_report.class_counts(labels, held.owners, 10, 10)
  measured = partition_report.noniid_r(counts)
  assert measured == pytest.approx(n / (n + shared), abs=0.01)
  assert measured == pytest.approx(printed, abs=0.03)


def test_records(digits, paths):
  held = _build(digits)
  split_manifest.write(held, *paths, labels_at='clients')
  loaded, said = split_manifest.load(*paths)
  assert loaded.digest() == held.digest() and loaded.is_shared
  examples = said['examples']
  assert examples['clients'] == len(held.examples)
  assert said['labels']['labelled'] + examples['unused'] == 1437
  (line,) = [x for x in partition_report.lines(digits, held) if 'copies' in x]
  assert '100% of them' in line


@pytest.mark.parametrize(
  'given, message',
  [
    (
      {'server_examples': 50},
      'server_examples=50 and shared_fraction=.* exclude',
    ),
    ({'mask_ratio': 0.5}, 'mask_ratio=0.5 and shared_fraction=.* exclude'),
    ({'shared_fraction': 0.0}, 'shared_fraction must be'),
    ({'shared_fraction': 0.001}, 'less than one of each of 10 classes'),
    ({'shared_share': 0.001}, 'less than one: raise it'),
  ],
)
def test_what_cannot_be_shared(digits, given, message):
  with pytest.raises(ValueError, match=message):
    _build(digits, **given)


def test_a_class_with_too_few_examples(digits):
  labels = digits.train.labels.copy()
  labels[np.flatnonzero(labels == 3)[5:]] = 4
  train = dataclasses.replace(digits.train, labels=labels)
  skewed = dataclasses.replace(digits, train=train)
  message = "shared_fraction=0.25 asks for .* the class '3', which has 5"
  with pytest.raises(ValueError, match=message):
    _build(skewed, noniid_r=0.0)


def test_size_is_by_hand():
  # 1,050 = 1,000 + 50.
  assert client_labels.shared_set_size(1050, 10, 0.05) == 50
  assert client_labels.shared_set_size(1059, 10, 0.05) == 50


def test_a_copy_twice_is_no_partition(digits):
  held = _build(digits)
  examples = held.examples.copy()
  copies = np.flatnonzero(np.isin(held.client_indices(0), held.server_indices))
  examples[copies[1]] = examples[copies[0]]
  fields = {**vars(held), 'examples': examples}
  with pytest.raises(ValueError, match='more than once'):
    type(held)(**fields)
