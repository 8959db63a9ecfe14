"""Class priors of sets: what the paper's text and its authors' code demand."""

import numpy as np
import pytest

from datasets.partition import u_set_draws


def rng(seed=0):
  return np.random.default_rng(seed)


@pytest.mark.parametrize('num_clients', [1, 5, 50])
def test_noniid_shares_are_those_of_section_4(num_clients):
  shares = u_set_draws.paper_class_shares(
    'noniid', num_clients, np.full(10, 0.1), rng()
  )
  assert shares.shape == (num_clients, 10)
  np.testing.assert_allclose(shares.sum(axis=1), 1)
  for client, own in enumerate(shares):
    # Table D.5: classes 0 and 1 of the first client, 2 and 3 of the second.
    majority = {2 * client % 10, (2 * client + 1) % 10}
    for label, share in enumerate(own):
      if label in majority:
        assert 0.15 <= share <= 0.25
      else:
        assert 0 < share < 0.08


def test_iid_shares_are_those_of_the_data():
  data = np.array([0.5, 0.3, 0.2])
  shares = u_set_draws.paper_class_shares('iid', 4, data, rng())
  np.testing.assert_array_equal(shares, [data] * 4)


def test_few_classes_cannot_be_noniid_by_the_text():
  with pytest.raises(ValueError, match="priors='noniid' needs 9 classes.* 8"):
    u_set_draws.paper_class_shares('noniid', 2, np.full(8, 1 / 8), rng())
  shares = u_set_draws.paper_class_shares('noniid', 3, np.full(9, 1 / 9), rng())
  assert (np.sort(shares, axis=1)[:, :-2] < 0.08).all()


@pytest.mark.parametrize('num_sets', [10, 20, 40])
def test_rows_sum_to_one_and_their_mean_is_the_client_s(num_sets):
  shares = np.array([0.24, 0.2, *np.full(8, 0.07)])
  priors = u_set_draws.paper_priors(num_sets, shares, rng(3))
  assert priors.shape == (num_sets, 10) and (priors > 0).all()
  np.testing.assert_allclose(priors.sum(axis=1), 1, atol=1e-12)
  np.testing.assert_allclose(priors.mean(axis=0), shares, atol=1e-9)
  assert np.linalg.matrix_rank(priors) == 10
  # Scaling rows and columns keeps the ratios of the entries that were drawn.
  drawn = rng(3).uniform(0.1, 0.9, (num_sets, 10))
  cross = lambda a: a[0, 0] * a[1, 1] / (a[0, 1] * a[1, 0])
  assert cross(priors) == pytest.approx(cross(drawn))


def test_a_class_without_data_has_no_prior():
  priors = u_set_draws.paper_priors(4, np.array([0.5, 0.0, 0.5]), rng())
  assert not priors[:, 1].any()
  np.testing.assert_allclose(priors.sum(axis=1), 1)


def test_quotas_of_the_code():
  own = u_set_draws.code_quotas('noniid', [12, 20], 10, rng())
  assert [len(one) for one in own] == [12, 20]
  for one in own:
    np.testing.assert_allclose(one.sum(axis=1), 1)
    # U[.1, 1] times 10 against eight others of at most 1: the class whose turn
    # it is cannot be less than a tenth of the row.
    turns = one[np.arange(len(one)), np.arange(len(one)) % 10]
    assert turns.min() > 1 / 10
    assert turns.mean() == pytest.approx(0.5, abs=0.15)
  shared = u_set_draws.code_quotas('iid', [20] * 3, 10, rng())
  assert all(one is shared[0] for one in shared)
  np.testing.assert_allclose(shared[0].sum(axis=0), 1)
  with pytest.raises(ValueError, match=r'sets_per_client=\[10, 20\]'):
    u_set_draws.code_quotas('iid', [10, 20], 10, rng())


def test_noniid_shares_of_the_code():
  shares = u_set_draws.code_class_shares(7, 10, rng())
  np.testing.assert_allclose(shares.sum(axis=1), 1)
  ordered = np.sort(shares, axis=1)
  # Table D.5: 4498 and 4646 of 9595 examples, and 54 to 60 of the others.
  assert (abs(ordered[:, -2:] - 0.476) < 0.05).all()
  assert (abs(ordered[:, :-2] - 0.006) < 0.001).all()
  assert set(np.argsort(shares[5])[-2:]) == {0, 1}
