"""Tiny networks for the digits of 8x8 pixels, and views of these."""

import functools

import tensorflow as tf

from tff_ssl import augmentation
from tff_ssl.models import blocks, dense, functional, split
from tff_ssl.testing.tiny_problems import INPUT_SHAPE, NUM_CLASSES


class NoisyViews(augmentation.PlainViews):
  """Views that let NaN and Inf pass; the strong view has noise on it."""

  def strong(self, examples: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns `plain(examples)` with normal noise of stddev 0.2."""
    noise = tf.random.stateless_normal(tf.shape(examples), seed, stddev=0.2)
    return self.plain(examples) + noise


@functools.cache
def build(normalised: bool = False) -> functional.FunctionalModel:
  """Returns a network for the digits.

  Args:
    normalised: Whether it has two convolutions with batch and with group
      normalisation, in the place of one fully connected layer of 24 units.
  """
  return functional.from_keras(
    lambda: tf.keras.Sequential(
      [*_hidden_layers(normalised), tf.keras.layers.Dense(NUM_CLASSES)]
    )
  )


@functools.cache
def build_split(normalised: bool = False) -> split.SplitModel:
  """Returns the same network as an encoder with a head."""
  encoder = functional.from_keras(
    lambda: tf.keras.Sequential(_hidden_layers(normalised))
  )
  (num_features,) = split.features_spec(encoder).shape[1:]
  return split.join(
    encoder, functional.from_keras(dense.linear_head(num_features, NUM_CLASSES))
  )


def _hidden_layers(normalised):
  layers = tf.keras.layers
  if not normalised:
    hidden = [layers.Flatten(), layers.Dense(24), layers.ReLU()]
  else:
    hidden = [
      *_convolution(4, 'batch'),
      layers.MaxPool2D(),
      *_convolution(8, 'group'),
      layers.MaxPool2D(),
      layers.Flatten(),
    ]
  return [layers.Input(INPUT_SHAPE), *hidden]


def _convolution(channels, norm):
  return (
    tf.keras.layers.Conv2D(channels, 3, padding='same'),
    blocks.make_norm(norm),
    tf.keras.layers.ReLU(),
  )
