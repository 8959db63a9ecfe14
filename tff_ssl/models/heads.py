"""Heads: what is put on an encoder (`tff_ssl.models.split`)."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_ssl import checks
from tff_ssl.models import blocks

layers = tf.keras.layers


def linear_head(num_features: int, num_outputs: int) -> tf.keras.Model:
  """Builds one linear layer, such as a classifier that gives logits.

  Args:
    num_features: Number of features of the encoder.
    num_outputs: Number of outputs, such as classes.

  Returns:
    A `tf.keras.Model` from float32 [batch, num_features] to float32
    [batch, num_outputs].

  Raises:
    ValueError: If an argument is out of range.
  """
  checks.integers_at_least(
    1, num_features=num_features, num_outputs=num_outputs
  )
  return tf.keras.Sequential(
    [layers.Input((num_features,)), blocks.output_layer(num_outputs)],
    name='linear_head',
  )


def unsure_head(num_features: int, num_outputs: int) -> tf.keras.Model:
  """Builds a linear classifier whose weights start near 0.

  For encoders of many features; `tff_ssl.models.blocks.classifier` says why.

  Args:
    num_features: Number of features of the encoder.
    num_outputs: Number of classes.

  Returns:
    As `linear_head`.

  Raises:
    ValueError: If an argument is out of range.
  """
  checks.integers_at_least(
    1, num_features=num_features, num_outputs=num_outputs
  )
  features = layers.Input((num_features,))
  logits = blocks.classifier(features, num_outputs)
  return tf.keras.Model(features, logits, name='unsure_head')


def dense_decoder(
  num_features: int, output_shape: Sequence[int]
) -> tf.keras.Model:
  """Builds one linear layer to the pixels of an image.

  Args:
    num_features: Number of features of the encoder.
    output_shape: Height, width and channels.

  Returns:
    A `tf.keras.Model` from float32 [batch, num_features] to float32
    [batch, *output_shape]: logits of pixels, of which the sigmoid is an image.

  Raises:
    ValueError: If an argument is out of range.
  """
  checks.integers_at_least(1, num_features=num_features)
  if not output_shape or min(output_shape) < 1:
    raise ValueError(
      f'output_shape is {tuple(output_shape)}: give positive sizes.'
    )
  return tf.keras.Sequential(
    [
      layers.Input((num_features,)),
      blocks.output_layer(int(np.prod(output_shape))),
      layers.Reshape(tuple(output_shape), dtype='float32'),
    ],
    name='dense_decoder',
  )
