"""Tiny networks for the digits of 8x8 pixels, to check a process with."""

from __future__ import annotations

import functools

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl.models import functional, heads, normalization, split

INPUT_SHAPE = (8, 8, 1)
NUM_CLASSES = 10


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
    encoder, functional.from_keras(heads.linear_head(num_features, NUM_CLASSES))
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
    normalization.make_norm(norm),
    tf.keras.layers.ReLU(),
  )
