"""Noise in class priors, against the formulas of the paper."""

import numpy as np
import pytest

from datasets.partition import u_sets


def rng(seed=0):
  return np.random.default_rng(seed)


@pytest.mark.parametrize(
  'formula, factor',
  [
    ('printed', lambda gamma: (2 * 0.8 - 1) * gamma + 1),
    ('symmetric', lambda gamma: (2 * gamma - 1) * 0.8 + 1),
  ],
)
def test_noise_of_section_4_2(formula, factor):
  priors = rng().dirichlet(np.ones(6), (3, 8))
  priors[1, 5:] = 0
  noisy = u_sets.with_noise(priors, 0.8, formula, rng(1))
  factors = factor(rng(1).uniform(size=priors.shape))
  expected = np.clip(priors * factors, 0, 1)
  expected[priors.any(axis=2)] /= expected[priors.any(axis=2)].sum(
    axis=1, keepdims=True
  )
  np.testing.assert_allclose(noisy, expected)
  assert not noisy[1, 5:].any()
  assert u_sets.with_noise(priors, 0.0, formula, rng(1)) is priors


def test_how_far_noise_is_from_the_truth():
  priors = rng().dirichlet(np.ones(6), (5, 10))

  def distance(epsilon, formula):
    noisy = u_sets.with_noise(priors, epsilon, formula, rng(1))
    return np.abs(noisy - priors).sum()

  grid = (0.0, 0.2, 0.4, 0.8, 1.6)
  symmetric = [distance(epsilon, 'symmetric') for epsilon in grid]
  assert symmetric[0] == 0 and symmetric == sorted(symmetric)
  printed = dict(zip(grid, (distance(e, 'printed') for e in grid), strict=True))
  assert printed[0.0] == 0 < printed[0.4] < printed[0.8] < printed[0.2]
  # As much as the symmetric one at .52.
  assert printed[0.2] < printed[1.6] < symmetric[3]
  assert printed[1.6] == pytest.approx(distance(0.52, 'symmetric'), rel=0.05)
  assert distance(0.5, 'printed') == pytest.approx(0, abs=1e-12)
  extreme = u_sets.with_noise(priors, 1.6, 'symmetric', rng(1))
  assert extreme.min() == 0
  np.testing.assert_allclose(extreme.sum(axis=2), 1)


def test_noise_that_leaves_nothing():
  one = np.ones((200, 1, 1))
  with pytest.raises(ValueError, match='prior_noise=1.6 leaves a set'):
    u_sets.with_noise(one, 1.6, 'symmetric', rng())
