"""Weights of mixup, drawn from a symmetric Beta distribution.

Source: Zhang et al., mixup (arXiv 1710.09412), Section 2.
"""

import tensorflow as tf

from tff_ssl import checks


def beta_weights(seed: tf.Tensor, shape, concentration: float) -> tf.Tensor:
  """Draws from Beta(a, a).

  Args:
    seed: `int32 [2]`.
    shape: Shape of the result.
    concentration: a > 0.

  Returns:
    `float32` of this shape, in [0, 1].

  Raises:
    ValueError: If `concentration` is not a number above 0.
  """
  checks.numbers_at_least(0, above=True, concentration=concentration)
  # Both of two gammas are 0 in float32 where a is small.
  gammas = tf.random.stateless_gamma(
    tf.concat([[2], tf.cast(shape, tf.int32)], 0),
    seed,
    alpha=concentration,
    dtype=tf.float64,
  )
  return tf.cast(gammas[0] / (gammas[0] + gammas[1]), tf.float32)
