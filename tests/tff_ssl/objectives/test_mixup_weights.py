"""Weights of mixup against the Beta distribution of scipy."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tff_ssl.objectives import mixup


@pytest.mark.parametrize('concentration', [0.3, 0.75, 3.0])
def test_draws_follow_the_distribution(concentration):
  draws = mixup.beta_weights(tf.constant([1, 2]), [4000], concentration)
  assert draws.dtype == tf.float32
  expected = scipy.stats.beta(concentration, concentration)
  # Standard errors of 4,000 draws are below 0.008 for the mean.
  assert np.mean(draws) == pytest.approx(expected.mean(), abs=0.03)
  assert np.var(draws) == pytest.approx(expected.var(), abs=0.01)
  assert scipy.stats.kstest(draws.numpy(), expected.cdf).pvalue > 1e-3


def test_the_seed_decides():
  one, same, other = (
    mixup.beta_weights(tf.constant(seed), [], 0.75)
    for seed in ([1, 2], [1, 2], [1, 3])
  )
  assert one.shape == []
  assert float(one) == float(same) != float(other)


@pytest.mark.parametrize('concentration', [0.0, float('nan'), 'dense'])
def test_concentration_must_be_positive(concentration):
  with pytest.raises(ValueError, match='concentration must be a number > 0'):
    mixup.beta_weights(tf.constant([0, 0]), [], concentration)
