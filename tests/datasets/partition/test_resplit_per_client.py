"""A tenth of the training examples of each client for validation."""

import collections

import numpy as np
import pytest

from datasets.partition import resplit
from datasets.sources.source import UNKNOWN, Source, Split

OWNERS = ['b'] * 25 + ['a'] * 40 + ['short'] * 9


def source_of(owners=OWNERS, labels=None, **changes):
  numbers = np.random.default_rng(0).permutation(len(OWNERS))
  labels = numbers % 3 if labels is None else np.asarray(labels)
  ids = None if owners is None else np.asarray(owners, object)
  images = numbers.astype(np.uint8).reshape(-1, 1, 1, 1)
  train = Split(images, labels.astype(np.int32), ids)
  test = Split(images, np.maximum(train.labels, 0), ids)
  return Source(
    'made', 'v1', 'Made', train, test, 3, (0.5,), (0.5,), 0, False, **changes
  )


def owners_by_image(split):
  numbers = split.examples.ravel().tolist()
  return dict(zip(numbers, split.client_ids.tolist(), strict=True))


def test_each_client_keeps_nine_tenths():
  source = source_of()
  made = resplit.hold_out_per_client(source, seed=3)
  train, validation = map(owners_by_image, (made.train, made.validation))
  # Rounded down; one with fewer than ten keeps all.
  assert collections.Counter(validation.values()) == {'b': 2, 'a': 4}
  assert {**train, **validation} == owners_by_image(source.train)
  assert not set(train) & set(validation)
  for split in (made.train, made.validation):
    np.testing.assert_array_equal(split.labels, split.examples.ravel() % 3)
  assert made.test is source.test
  assert made.version == 'v1-90_10_per_client-seed3'
  assert '6 of the training examples' in made.title


def test_the_seed_draws():
  first, again, other = (
    resplit.hold_out_per_client(source_of(), seed) for seed in (0, 0, 1)
  )
  assert owners_by_image(first.validation) == owners_by_image(again.validation)
  assert owners_by_image(first.validation) != owners_by_image(other.validation)
  assert first.title == other.title and first.version != other.version


def test_validation_examples_have_labels():
  labels = np.arange(len(OWNERS)) % 3
  labels[:20] = UNKNOWN
  made = resplit.hold_out_per_client(source_of(labels=labels), seed=0)
  # 'b' has 5 labels left, too few for a tenth.
  assert set(made.validation.client_ids) == {'a'}
  assert UNKNOWN not in made.validation.labels
  assert (made.train.labels == UNKNOWN).sum() == 20


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'owners': None}, "made names no owners: choose split='80_5_15' or"),
    (
      {'owners': [str(i) for i in range(len(OWNERS))]},
      'none of whose owners has 10 labels',
    ),
    ({'labels': [UNKNOWN] * len(OWNERS)}, 'none of whose owners has 10 labels'),
    ({'validation': source_of().train}, 'a validation split of its own'),
  ],
)
def test_what_cannot_be_held_out(changes, message):
  with pytest.raises(ValueError, match=message):
    resplit.hold_out_per_client(source_of(**changes), seed=0)


def test_a_class_that_would_be_left_without_training_examples():
  # The one example of class 2 is drawn by some seed.
  labels = np.zeros(len(OWNERS), int)
  labels[0] = 2
  source = source_of(labels=labels)
  outcomes = collections.Counter()
  for seed in range(40):
    try:
      made = resplit.hold_out_per_client(source, seed)
    except ValueError as error:
      assert 'classes [2] of made' in str(error)
      outcomes['refused'] += 1
    else:
      assert 2 in made.train.labels
      outcomes['made'] += 1
  assert outcomes['refused'] and outcomes['made']
