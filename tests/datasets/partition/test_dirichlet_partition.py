"""The Dirichlet partition, against its distribution's known moments."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from datasets.partition import assignment
from datasets.partition.class_skew import dirichlet_partition
from datasets.records import partition_report

LABELS = load_digits().target


@pytest.fixture
def split(source_of):
  def build(labels=LABELS, **arguments):
    return dirichlet_partition(
      source_of(labels),
      **{
        'num_clients': 8,
        'dirichlet_alpha': 0.5,
        'min_client_examples': 10,
        'server_examples': 100,
        'seed': 3,
        **arguments,
      },
    )

  return build


def counts_of(held, labels):
  of_example = labels[held.examples], held.owners
  return partition_report.class_counts(
    *of_example, held.num_clients, max(labels) + 1
  )


@pytest.mark.parametrize('alpha', [0.001, 0.1, 1.0, 1e6])
@pytest.mark.parametrize('num_clients', [1, 2, 30])
def test_every_example_is_given_once(split, alpha, num_clients):
  held = split(
    dirichlet_alpha=alpha, num_clients=num_clients, min_client_examples=0
  )
  given = np.concatenate([held.server_indices, held.examples])
  np.testing.assert_array_equal(np.sort(given), np.arange(len(LABELS)))
  assert held.num_clients == num_clients


def test_server_set_comes_first_and_is_class_uniform(split):
  held = split()
  at_server = np.bincount(LABELS[held.server_indices], minlength=10)
  assert at_server.tolist() == [10] * 10
  other = split(dirichlet_alpha=5.0, num_clients=4)
  np.testing.assert_array_equal(held.server_indices, other.server_indices)


@pytest.mark.parametrize('alpha', [0.1, 0.5, 2.0])
def test_shares_have_the_moments_of_the_distribution(split, alpha):
  # Each share is Beta(alpha, (K - 1) alpha): mean 1 / K and variance
  # (K - 1) / (K^2 (K alpha + 1)). 60 classes of 500 in 10 parts, rounded.
  labels = np.repeat(np.arange(60), 500)
  held = split(
    labels,
    num_clients=10,
    dirichlet_alpha=alpha,
    min_client_examples=0,
    server_examples=0,
  )
  shares = counts_of(held, labels) / 500
  assert shares.mean() == pytest.approx(0.1)
  expected = 9 / (100 * (10 * alpha + 1))
  assert shares.var() == pytest.approx(expected, rel=0.25)


def test_large_alpha_gives_all_alike(split):
  held = split(dirichlet_alpha=1e6, server_examples=0)
  exact = np.bincount(LABELS) / 8
  assert np.abs(counts_of(held, LABELS) - exact).max() < 2


def test_draws_go_on_until_each_client_has_enough(split):
  few = {'num_clients': 10, 'dirichlet_alpha': 0.3}
  free = split(**few, min_client_examples=0)
  held = split(**few, min_client_examples=120)
  assert free.client_sizes.min() < 120 <= held.client_sizes.min()
  # A minimum that the first draw keeps changes nothing.
  same = split(**few, min_client_examples=int(free.client_sizes.min()))
  np.testing.assert_array_equal(same.examples, free.examples)


def test_a_seed_fixes_it(split):
  one, again, other = split(), split(), split(seed=4)
  np.testing.assert_array_equal(one.examples, again.examples)
  np.testing.assert_array_equal(one.offsets, again.offsets)
  assert not np.array_equal(one.offsets, other.offsets)


def test_hopeless_draws_end_with_both_remedies(split, refusal):
  remedies = 'raise dirichlet_alpha, or lower min_client_examples'
  with refusal('dirichlet_alpha=0.01', remedies, 'min_client_examples=10'):
    split(num_clients=50, dirichlet_alpha=0.01)


def test_more_than_there_is(split):
  with pytest.raises(ValueError, match='needs more than the 1697 examples'):
    split(num_clients=170)
  with pytest.raises(ValueError, match='num_clients=1698'):
    split(num_clients=1698, min_client_examples=0)
  with pytest.raises(ValueError, match='server_examples=1790.*class'):
    split(server_examples=1790)


def test_classes_are_mixed_within_a_client(split):
  held = split(dirichlet_alpha=100.0)
  assert isinstance(held, assignment.Assignment)
  for client in range(8):
    assert len(np.unique(LABELS[held.client_indices(client)][:40])) > 5
