"""Mixing weights have the moments of Beta; mixed losses equal numpy's."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from tff_ssl.objectives.maths import mixup

_SEED = tf.constant([3, 4])


@pytest.mark.parametrize('concentration', [0.5, 0.75, 1.0, 5.0])
def test_weights_are_drawn_from_beta(concentration):
  size = 20_000
  draws = mixup.beta_weights(_SEED, [size], concentration).numpy()
  assert draws.dtype == np.float32 and 0 <= draws.min() <= draws.max() <= 1
  beta = scipy.stats.beta(concentration, concentration)
  mean, variance, skew, kurtosis = (float(m) for m in beta.stats('mvsk'))
  # Standard errors of the mean and, by the fourth moment, of the variance.
  spread = np.sqrt(variance / size)
  assert abs(draws.mean() - mean) < 4 * spread
  spread = variance * np.sqrt((kurtosis + 2) / size)
  assert abs(draws.var() - variance) < 4 * spread
  assert scipy.stats.kstest(draws, beta.cdf).pvalue > 1e-3


def test_weights_are_a_function_of_the_seed():
  draw = lambda seed: mixup.beta_weights(tf.constant(seed), [5], 0.75).numpy()
  np.testing.assert_array_equal(draw([3, 4]), draw([3, 4]))
  assert not np.any(draw([3, 4]) == draw([3, 5]))
  one = mixup.beta_weights(_SEED, [], 0.75)
  assert one.shape == ()


@pytest.mark.parametrize('weights', [0.25, [0.0, 0.25, 1.0]])
def test_mixtures_and_their_losses_equal_numpy(weights):
  rng = np.random.default_rng(0)
  first, second = rng.normal(size=(2, 3, 2, 2)).astype(np.float32)
  logits = rng.normal(size=(3, 4)).astype(np.float32)
  labels, others = np.array([0, 3, 2]), np.array([1, 3, 0])
  weights = np.array(weights, np.float32)
  each = np.broadcast_to(weights, [3])
  np.testing.assert_allclose(
    mixup.mix(tf.constant(first), tf.constant(second), tf.constant(weights)),
    each[:, None, None] * first + (1 - each[:, None, None]) * second,
    rtol=1e-6,
  )
  nats = -scipy.special.log_softmax(logits, axis=1)
  rows = np.arange(3)
  np.testing.assert_allclose(
    mixup.mixed_cross_entropy(labels, others, logits, tf.constant(weights)),
    each * nats[rows, labels] + (1 - each) * nats[rows, others],
    rtol=1e-5,
  )


@pytest.mark.parametrize('concentration', [0.0, -1.0, float('nan'), 'even'])
def test_a_concentration_is_positive(concentration):
  with pytest.raises(ValueError, match='concentration must be a number > 0'):
    mixup.beta_weights(_SEED, [], concentration)
