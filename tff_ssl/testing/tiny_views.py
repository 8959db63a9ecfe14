"""Views of the tiny digits, to check a process with."""

import tensorflow as tf

from tff_ssl import augmentation


class NoisyViews(augmentation.PlainViews):
  """Views that let NaN and Inf pass; the strong view has noise on it."""

  def strong(self, examples: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns `plain(examples)` with normal noise of stddev 0.2."""
    noise = tf.random.stateless_normal(tf.shape(examples), seed, stddev=0.2)
    return self.plain(examples) + noise
