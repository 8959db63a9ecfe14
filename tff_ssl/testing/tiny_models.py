"""Tiny networks for the digits of 8x8 pixels, to check a process with."""

from __future__ import annotations

import functools
from collections.abc import Callable

from etils import epy

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl.models import blocks, dense, functional, split

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


def softmax_regression(
  num_features: int,
  num_classes: int,
  initial_weights: Callable[[int], tff.learning.models.ModelWeights]
  | None = None,
) -> functional.FunctionalModel:
  """Returns the model x W + b, whose rounds can be worked out by hand.

  Args:
    num_features: Of an example, `float32 [num_features]`.
    num_classes: Number of classes.
    initial_weights: From a seed to W `float32 [num_features, num_classes]` and
      b `float32 [num_classes]`; `None` where nobody asks for them.
  """
  specs = [
    tf.TensorSpec([num_features, num_classes]),
    tf.TensorSpec([num_classes]),
  ]
  return functional.FunctionalModel(
    initial_weights=initial_weights,
    predict=lambda trainable, non_trainable, x, *, training, seed=None: (
      tf.matmul(x, trainable[0]) + trainable[1],
      non_trainable,
    ),
    input_spec=tf.TensorSpec([None, num_features], tf.float32),
    weights_spec=tff.learning.models.ModelWeights(specs, []),
    is_random=False,
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
