"""Mismatch of labelled and unlabelled examples: by hand, and against scipy."""

import math

import numpy as np
import pytest
from scipy import stats
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
    # scipy.stats.entropy makes shares of counts.
    expected = stats.entropy(labelled[client], unlabelled[client] + 0.1)
    assert found.kl[client] == pytest.approx(expected, abs=1e-12)
    p = labelled[client] / labelled[client].sum()
    q = unlabelled[client] / unlabelled[client].sum()
    expected = distance.cityblock(p, q) / 2
    assert found.total_variation[client] == pytest.approx(expected, abs=1e-12)


def test_by_hand():
  found = partition_report.mismatch_of(
    # Equal shares; one class against the other; half of it.
    np.array([[1, 1], [2, 0], [5, 0]]),
    np.array([[7, 7], [0, 8], [3, 3]]),
  )
  # q' of client 1 is (.5/9, 8.5/9), of client 2 (3.5/7, 3.5/7).
  np.testing.assert_allclose(found.kl, [0, math.log(18), math.log(2)])
  np.testing.assert_allclose(found.total_variation, [0, 1, 0.5])
  assert found.describe() == {
    'label_mismatch_kl_mean': pytest.approx(math.log(36) / 3),
    'label_mismatch_kl_max': pytest.approx(math.log(18)),
    'label_mismatch_tv_mean': pytest.approx(0.5),
    'label_mismatch_tv_max': pytest.approx(1.0),
  }


def test_clients_without_one_of_the_two_are_left_out():
  found = partition_report.mismatch_of(
    np.array([[0, 0], [3, 0], [2, 0]]), np.array([[5, 1], [0, 0], [0, 4]])
  )
  assert np.isnan(found.kl).tolist() == [True, True, False]
  assert np.isnan(found.total_variation).tolist() == [True, True, False]
  figures = found.describe()
  assert figures['label_mismatch_tv_mean'] == 1.0
  assert figures['label_mismatch_kl_max'] == pytest.approx(math.log(10))
  none = partition_report.mismatch_of(np.array([[0, 0]]), np.array([[5, 1]]))
  assert none.describe() == {}
