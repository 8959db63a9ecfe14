"""The choices of train, validation and test by name."""

import collections
import dataclasses

import numpy as np
import pytest

from datasets.partition import resplit
from datasets.sources import catalogue


@pytest.fixture(scope='module')
def digits():
  return catalogue.load('digits', data_dir=None, cache_dir='/nowhere')


@pytest.mark.parametrize(
  'split, train, validation, test',
  [
    (None, 1437, None, 360),
    ('own', 1437, None, 360),
    # 5% and 15% of 1,797.
    ('80_5_15', 1439, 89, 269),
    # A fifth of 1,437.
    ('80_20', 1150, 287, 360),
    # The rarest of ten classes has 35 test examples.
    ('80_20_uniform', 1150, 287, 350),
  ],
)
def test_sizes_of_each_choice(digits, split, train, validation, test):
  cut = resplit.resplit(digits, split, seed=0)
  assert len(cut.train.labels) == train
  assert len(cut.test.labels) == test
  found = None if cut.validation is None else len(cut.validation.labels)
  assert found == validation


def test_owners_remain_where_each_gives_a_tenth(digits):
  owners = np.repeat(np.array(['a', 'b'], object), [37, 1400])
  train = dataclasses.replace(digits.train, client_ids=owners)
  owned = dataclasses.replace(digits, train=train)
  cut = resplit.resplit(owned, '90_10_per_client', seed=0)
  assert collections.Counter(cut.validation.client_ids) == {'a': 3, 'b': 140}
  assert collections.Counter(cut.train.client_ids) == {'a': 34, 'b': 1260}
  with pytest.raises(ValueError, match='digits names no owners'):
    resplit.resplit(digits, '90_10_per_client', seed=0)


def test_another_choice_is_refused(digits):
  with pytest.raises(ValueError, match="split must be one of .* is 'half'"):
    resplit.resplit(digits, 'half', seed=0)
