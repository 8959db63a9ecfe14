"""The last fifth for validation, and as many test examples of each class."""

import numpy as np
import pytest

from datasets.partition import resplit
from datasets.sources.source import Source, Split


def split_of(numbers, labels=None):
  numbers = np.asarray(numbers)
  labels = numbers % 3 if labels is None else np.asarray(labels)
  images = numbers.astype(np.uint8).reshape(-1, 1, 1, 1)
  return Split(images, labels.astype(np.int32))


def source_of(train, test=None, validation=None):
  test = split_of(range(12)) if test is None else test
  return Source(
    'made', 'v1', 'Made', train, test, 3, (0.5,), (0.5,), 0, False, validation
  )


@pytest.mark.parametrize('number, held', [(100, 20), (103, 20), (5, 1)])
def test_the_last_fifth(number, held):
  source = resplit.hold_out(source_of(split_of(range(number))))
  train, validation = source.train.examples.ravel(), source.validation.examples
  assert train.tolist() == list(range(number - held))
  assert validation.ravel().tolist() == list(range(number - held, number))
  assert source.validation.labels.tolist() == (validation.ravel() % 3).tolist()
  assert len(source.test.labels) == 12
  assert source.version == 'v1-80_20' and f'{held} training' in source.title


@pytest.mark.parametrize(
  'source, message',
  [
    (source_of(split_of(range(4))), 'no validation example of the 4'),
    (source_of(split_of(range(6), [0, 0, 0, 0, 0, 1])), r'classes \[1\]'),
    (source_of(split_of(range(6), [0, 0, 0, 0, 0, -1])), 'without labels'),
    (source_of(split_of(range(9)), None, split_of([1])), 'a validation split'),
  ],
)
def test_what_cannot_be_held_out(source, message):
  with pytest.raises(ValueError, match=message):
    resplit.hold_out(source)


def test_uniform_test():
  test = split_of(range(60), np.repeat([0, 1, 2], [10, 20, 30]))
  made, same, other = (
    resplit.with_uniform_test(source_of(split_of(range(9)), test), seed)
    for seed in (1, 1, 2)
  )
  assert np.bincount(made.test.labels).tolist() == [10, 10, 10]
  chosen = made.test.examples.ravel()
  assert len(set(chosen)) == 30
  np.testing.assert_array_equal(made.test.labels, test.labels[chosen])
  np.testing.assert_array_equal(chosen, same.test.examples.ravel())
  assert set(chosen) != set(other.test.examples.ravel())
  assert made.version != other.version
  test = split_of(range(4), [0, 0, 2, 2])
  with pytest.raises(ValueError, match='no test example of class 1'):
    resplit.with_uniform_test(source_of(split_of(range(9)), test), 0)
