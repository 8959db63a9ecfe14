"""Mismatch of labelled and unlabelled examples: by hand, and against scipy."""

import numpy as np
import pytest
from scipy.spatial import distance

from datasets.records import partition_report


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_against_scipy(seed):
  rng = np.random.default_rng(seed)
  labelled = rng.integers(0, 3, [12, 10])
  unlabelled = rng.integers(0, 90, [12, 10])
  unlabelled[:, rng.integers(10)] = 0
  found = partition_report.mismatch_of(labelled, unlabelled)
  for client in range(12):
    p = labelled[client] / labelled[client].sum()
    q = unlabelled[client] / unlabelled[client].sum()
    expected = distance.cityblock(p, q) / 2
    assert found[client] == pytest.approx(expected, abs=1e-12)


def test_by_hand():
  found = partition_report.mismatch_of(
    # Equal shares; one class against the other; half of it.
    np.array([[1, 1], [2, 0], [5, 0]]),
    np.array([[7, 7], [0, 8], [3, 3]]),
  )
  np.testing.assert_allclose(found, [0, 1, 0.5])


def test_clients_without_one_of_the_two_are_left_out():
  found = partition_report.mismatch_of(
    np.array([[0, 0], [3, 0], [2, 0]]), np.array([[5, 1], [0, 0], [0, 4]])
  )
  np.testing.assert_array_equal(found, [np.nan, np.nan, 1])
