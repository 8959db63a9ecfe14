"""Counts, R of Eq. 2 and the picture, against plain loops and hand cases."""

import numpy as np
import pytest

from datasets.records import partition_report


def brute_force_r(counts):
  shares = [row / row.sum() for row in counts if row.sum()]
  distances = [
    np.abs(shares[k] - shares[m]).sum() / 2
    for k in range(len(shares))
    for m in range(k + 1, len(shares))
  ]
  return np.mean(distances)


@pytest.mark.parametrize('num_clients, num_classes', [(2, 2), (7, 3), (40, 47)])
@pytest.mark.parametrize('seed', [0, 1, 2])
def test_r_is_the_mean_over_pairs(num_clients, num_classes, seed):
  rng = np.random.default_rng(seed)
  counts = rng.integers(0, 20, [num_clients, num_classes])
  counts[:, rng.integers(num_classes)] *= 5
  expected = brute_force_r(counts)
  np.testing.assert_allclose(
    partition_report.noniid_r(counts), expected, atol=1e-12
  )


@pytest.mark.parametrize(
  'counts, expected',
  [
    (np.eye(47, dtype=int) * 9, 1.0),
    (np.full([10, 47], 3), 0.0),
    (np.outer([1, 7, 300], [1, 2, 3]), 0.0),
    ([[5, 5]], 0.0),
    (np.zeros([3, 2], int), 0.0),
    (np.zeros([0, 2], int), 0.0),
    # |.5-.25| + |.5-.75| = .5, halved.
    ([[1, 1], [1, 3]], 0.25),
    # Pairs: (0,1) 1, (0,2) .5, (1,2) .5.
    ([[4, 0], [0, 9], [1, 1]], 2 / 3),
    # Clients without examples are left out.
    ([[0, 0], [4, 0], [0, 0], [0, 9]], 1.0),
    # The paper's construction. Half of each of d clients' data is one class,
    # half is uniform: any two differ by .5 * (1 - 0) in total variation.
    (np.full([47, 47], 10) + np.eye(47, dtype=int) * 470, 0.5),
  ],
)
def test_r_by_hand(counts, expected):
  value = partition_report.noniid_r(np.asarray(counts))
  assert value == pytest.approx(expected, abs=1e-12)


def test_r_is_exactly_zero_for_equal_clients():
  assert partition_report.noniid_r(np.full([3_400, 47], 7)) == 0.0


def test_class_counts_against_a_loop():
  rng = np.random.default_rng(3)
  labels = rng.integers(0, 4, 200).astype(np.int32)
  owners = rng.integers(0, 6, 200).astype(np.int32)
  expected = np.zeros([7, 4], int)
  for label, owner in zip(labels, owners, strict=True):
    expected[owner, label] += 1
  counts = partition_report.class_counts(labels, owners, 7, 4)
  np.testing.assert_array_equal(counts, expected)
  assert counts.dtype == np.int64
  none = np.array([], int)
  counts = partition_report.class_counts(none, none, 2, 3)
  assert counts.tolist() == [[0] * 3] * 2


def test_summary_by_hand():
  counts = np.array([[4, 0, 0], [0, 9, 0], [1, 1, 0]])
  assert partition_report.summary(counts) == {
    'clients': 3,
    'examples': 15,
    'min_examples': 2,
    'median_examples': 4.0,
    'max_examples': 9,
    'classes': 2,
    'examples_of_known_class': 15,
    'measured_r': pytest.approx(2 / 3),
  }


def test_examples_of_unknown_class_count_in_sizes_only():
  labels, owners = np.array([0, -1, 2, -1, -1]), np.array([0, 0, 1, 1, 1])
  counts = partition_report.class_counts(labels, owners, 2, 3)
  np.testing.assert_array_equal(counts, [[1, 0, 0], [0, 0, 1]])
  assert partition_report.summary(counts, np.array([2, 3])) == {
    'clients': 2,
    'examples': 5,
    'min_examples': 2,
    'median_examples': 2.5,
    'max_examples': 3,
    'classes': 2,
    'examples_of_known_class': 2,
    'measured_r': 1.0,
  }


def test_no_clients_have_no_summary():
  with pytest.raises(ValueError, match='at least one client'):
    partition_report.summary(np.zeros([0, 3], int))
