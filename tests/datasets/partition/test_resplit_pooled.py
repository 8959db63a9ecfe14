"""The cut of pooled data: shares, completeness, and what depends on the seed.

Each image holds its number, so that nothing is lost or doubled unseen.
"""

import dataclasses

import numpy as np
import pytest

from datasets.partition import resplit
from datasets.sources.source import UNKNOWN, Source, Split


def split_of(numbers, client_ids=None):
  pixels = np.stack([numbers // 256, numbers % 256], axis=1).astype(np.uint8)
  labels = (numbers % 4).astype(np.int32)
  return Split(pixels.reshape(-1, 1, 2, 1), labels, client_ids)


def source_of(train, validation, test):
  numbers = np.arange(train + validation + test)
  of_train, held_out, of_test = np.split(numbers, [train, train + validation])
  owned = split_of(of_train, np.array(['a'] * train, object))
  held_out = split_of(held_out) if validation else None
  return Source(
    *('made', 'v1', 'Made', owned, split_of(of_test), 4, (0.5,), (0.5,), 0),
    mirrorable=False,
    validation=held_out,
  )


def numbers_in(split):
  pixels = split.examples.reshape(-1, 2).astype(int)
  numbers = pixels[:, 0] * 256 + pixels[:, 1]
  np.testing.assert_array_equal(split.labels, numbers % 4)
  assert split.examples.dtype == np.uint8 and split.labels.dtype == np.int32
  return numbers


# 58,830 is OrganAMNIST; the shares of the others are not whole.
@pytest.mark.parametrize(
  'sizes, expected',
  [
    ((34_561, 6_491, 17_778), (47_065, 2_941, 8_824)),
    ((700, 0, 300), (800, 50, 150)),
    ((700, 13, 306), (817, 50, 152)),
    ((15, 0, 5), (16, 1, 3)),
  ],
)
def test_shares_and_completeness(sizes, expected):
  made = resplit.cut(source_of(*sizes), seed=3)
  parts = [numbers_in(s) for s in (made.train, made.validation, made.test)]
  assert tuple(map(len, parts)) == expected
  together = np.sort(np.concatenate(parts))
  np.testing.assert_array_equal(together, np.arange(sum(sizes)))
  assert made.train.client_ids is None


def test_every_split_is_drawn_from_all_of_the_source():
  """Each new split holds its share of what was train, within 5 deviations."""
  made = resplit.cut(source_of(6_000, 1_000, 3_000), seed=0)
  for split in (made.train, made.validation, made.test):
    n = len(split.labels)
    from_train = np.count_nonzero(numbers_in(split) < 6_000)
    assert abs(from_train - 0.6 * n) < 5 * np.sqrt(n * 0.6 * 0.4)


def test_the_seed_fixes_the_cut_and_is_in_the_version():
  source = source_of(700, 100, 200)
  first, again, other = (resplit.cut(source, seed) for seed in (1, 1, 2))
  np.testing.assert_array_equal(numbers_in(first.test), numbers_in(again.test))
  assert not np.array_equal(numbers_in(first.test), numbers_in(other.test))
  assert first.version == again.version == 'v1-80_5_15-seed1'
  assert other.version == 'v1-80_5_15-seed2'
  assert '800 train, 50 validation and 150 test' in first.title
  # Else reports would not take them for one row.
  assert first.title == other.title
  assert (first.name, first.mean) == (source.name, source.mean)


def test_refusals():
  source = source_of(700, 0, 300)
  labels = np.where(np.arange(700) == 5, UNKNOWN, source.train.labels)
  train = dataclasses.replace(source.train, labels=labels)
  unlabelled = dataclasses.replace(source, train=train)
  with pytest.raises(ValueError, match='images without labels, which made'):
    resplit.cut(unlabelled, 0)
  with pytest.raises(ValueError, match='no validation example of the 19'):
    resplit.cut(source_of(15, 0, 4), 0)
  # All 20 but the one training example of its kind are of class 0.
  rare = source_of(15, 0, 5)
  train, test = (
    dataclasses.replace(split, labels=np.array(labels, np.int32))
    for split, labels in ((rare.train, [0] * 15), (rare.test, [0, 0, 0, 0, 3]))
  )
  rare = dataclasses.replace(rare, train=train, test=test)
  kept, refused = 0, 0
  for seed in range(20):
    try:
      made = resplit.cut(rare, seed)
    except ValueError as error:
      refused += 1
      assert f'seed={seed} leaves no training example' in str(error)
      assert '[3]' in str(error)
    else:
      kept += 1
      assert 3 in made.train.labels
  assert kept and refused
