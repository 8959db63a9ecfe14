"""Normalisation layers for image models.

Group normalisation (Wu & He 2018) keeps no statistics between batches, so that
nothing of it needs averaging over clients: the grouping paper's answer to batch
normalisation under non-IID data.
"""

import math

import tensorflow as tf

NORMS = ('none', 'batch', 'group')


@tf.keras.saving.register_keras_serializable(package='tff_ssl')
class GroupNormalization(tf.keras.layers.Layer):
  """Group normalisation over the last axis, fast on a CPU.

  Computes what `tf.keras.layers.GroupNormalization` computes, in about a
  quarter of its time. Its second derivatives are exact, too.

  With fewer channels than `groups`, or a number of channels which `groups` does
  not divide, the greatest common divisor of both is used: 48 channels and 32
  groups give 16 groups.
  """

  def __init__(self, groups: int = 32, epsilon: float = 1e-5, **kwargs):
    """Creates the layer.

    Args:
      groups: Largest number of groups of channels.
      epsilon: Added to the variance. The default is that of Wu & He and of
        PyTorch; Keras has 1e-3.
      **kwargs: Passed to `tf.keras.layers.Layer`.

    Raises:
      ValueError: If `groups` or `epsilon` is not positive.
    """
    super().__init__(**kwargs)
    if groups < 1:
      raise ValueError(f'groups is {groups}: give a positive number.')
    if epsilon <= 0:
      raise ValueError(f'epsilon is {epsilon}: give a positive number.')
    self._groups = groups
    self._epsilon = epsilon

  def build(self, input_shape):
    channels = input_shape[-1]
    if channels is None:
      raise ValueError(
        f'The input shape {input_shape} has no channels: define its last axis.'
      )
    positions = tf.TensorShape(input_shape[1:-1]).num_elements()
    if positions == 1 and self._groups % channels == 0:
      raise ValueError(
        f'The input shape {input_shape} in {self._groups} groups leaves one '
        'value in each, which would normalise to 0: use fewer groups.'
      )
    self.gamma = self.add_weight('gamma', [channels], initializer='ones')
    self.beta = self.add_weight('beta', [channels], initializer='zeros')
    super().build(input_shape)

  def call(self, inputs):
    """Normalises `inputs`, of shape [batch, ..., channels]."""
    shape = tf.shape(inputs)
    channels = inputs.shape[-1]
    # Not -1, which an empty batch leaves undefined.
    positions = tf.reduce_prod(shape[1:-1])
    flat = tf.reshape(inputs, [shape[0], positions, channels])
    mean = self._group_mean(flat)
    # Squares of the raw inputs would cancel; a fixed centre leaves a reduction
    # out of the backward pass. The second term is 0, its derivatives are not.
    centre = tf.stop_gradient(mean)
    variance = self._group_mean(tf.math.squared_difference(flat, centre))
    variance -= tf.math.squared_difference(mean, centre)
    scale = tf.math.rsqrt(variance + self._epsilon) * self.gamma
    outputs = tf.reshape(flat * scale + (self.beta - mean * scale), shape)
    return tf.ensure_shape(outputs, inputs.shape)

  def _group_mean(self, flat):
    """Averages groups: [batch, positions, channels] to [batch, 1, channels].

    First over positions, along whole rows of memory: reducing the small axis of
    a group's channels at full size is what takes the time.
    """
    channels = flat.shape[-1]
    groups = math.gcd(self._groups, channels)
    by_channel = tf.reshape(
      tf.reduce_mean(flat, 1), [-1, groups, channels // groups]
    )
    by_group = tf.reduce_mean(by_channel, 2, keepdims=True)
    spread = tf.broadcast_to(by_group, tf.shape(by_channel))
    return tf.reshape(spread, [-1, 1, channels])

  def get_config(self):
    return {
      **super().get_config(),
      'groups': self._groups,
      'epsilon': self._epsilon,
    }


def make_norm(kind: str) -> tf.keras.layers.Layer:
  """Makes a new normalisation layer.

  Args:
    kind: 'none' for the identity, 'batch' for batch normalisation with the
      constants of PyTorch, which the papers used (epsilon 1e-5, moving averages
      that keep 0.9 of their value at each step), 'group' for
      `GroupNormalization` with up to 32 groups.

  Returns:
    A Keras layer.

  Raises:
    ValueError: If `kind` is none of these.
  """
  if kind == 'none':
    return tf.keras.layers.Identity()
  if kind == 'batch':
    return tf.keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
  if kind == 'group':
    return GroupNormalization()
  raise ValueError(f'norm is {kind!r}: choose one of {", ".join(NORMS)}.')
