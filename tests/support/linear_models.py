"""A linear model with several weights, and one batch that has no labels."""

import collections

import federations
import numpy as np
import softmax_regression
import tensorflow as tf

from tff_ssl.models import functional

FEATURES, CLASSES, SIZE = 4, 3, 40


def model():
  """Returns the model to which all weights belong."""
  return federations.model(FEATURES, CLASSES)


def weights_of(seed):
  """Returns random weights."""
  rng = np.random.default_rng(seed)
  return functional.ModelWeights(
    [
      tf.constant(rng.normal(size=shape), tf.float32)
      for shape in ([FEATURES, CLASSES], [CLASSES])
    ],
    [],
  )


def batch():
  """Returns arrays whose true labels nobody may train on."""
  rng = np.random.default_rng(7)
  return collections.OrderedDict(
    x=rng.normal(size=(SIZE, FEATURES)).astype(np.float32),
    y=np.full(SIZE, -1, np.int32),
    true_y=rng.integers(0, CLASSES, SIZE).astype(np.int32),
  )


def probabilities(weights, factor=1):
  """Returns those of the batch times a factor."""
  return softmax_regression.probabilities(
    weights.trainable, factor * batch()['x']
  )


def assert_ratios(metrics, expected):
  """Compares metrics, each a numerator and a denominator, with numbers."""
  assert metrics.keys() >= expected.keys()
  for name, pair in expected.items():
    np.testing.assert_allclose(
      [float(value) for value in metrics[name]],
      pair,
      rtol=1e-5,
      err_msg=name,
    )
