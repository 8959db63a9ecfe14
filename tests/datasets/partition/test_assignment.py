"""Test examples of clients without their own: as many of each class."""

import numpy as np
import pytest

from datasets.partition import assignment

LABELS = np.random.default_rng(1).permutation(np.repeat([0, 1, 2], [10, 4, 15]))


def test_each_class_is_shared_evenly():
  owner = assignment.deal_test_evenly(LABELS, 3, 4, seed=5)
  table = np.zeros((4, 3), int)
  np.add.at(table, (owner, LABELS), 1)
  np.testing.assert_array_equal(table.sum(axis=0), [10, 4, 15])
  np.testing.assert_array_equal(np.sort(table, axis=0)[0], [2, 1, 3])
  np.testing.assert_array_equal(np.sort(table, axis=0)[-1], [3, 1, 4])


def test_the_seed_fixes_who_has_what():
  first, again, other = (
    assignment.deal_test_evenly(LABELS, 3, 4, s) for s in (5, 5, 6)
  )
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()


def test_a_class_that_is_too_small_is_refused():
  with pytest.raises(ValueError, match='num_clients=5: class 1 has 4 test'):
    assignment.deal_test_evenly(LABELS, 3, 5, seed=0)
