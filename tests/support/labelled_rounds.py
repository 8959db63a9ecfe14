"""Rounds of a few examples, labelled by softmax regression, to work by hand."""

import collections

import federations
import numpy as np
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close

from tff_ssl.models import functional

_FEATURES, _CLASSES, SIZE = 4, 3, 12
RATE = 0.5
_SPEC = federations.data_spec((_FEATURES,), true_labels=True, in_context=True)


def _linear(norm):
  def build():
    layers = tf.keras.layers
    head = [layers.BatchNormalization()] if norm else []
    return tf.keras.Sequential(
      [layers.Input((_FEATURES,)), *head, layers.Dense(_CLASSES)]
    )

  return functional.from_keras(build)


def arrays(seed, size=SIZE, scale=1.0):
  rng = np.random.default_rng(seed)
  x = scale * rng.normal(size=(size, _FEATURES))
  return x.astype(np.float32), rng.integers(0, _CLASSES, size).astype(np.int32)


SERVER = arrays(100)


@tff.tensorflow.computation
def server_data():
  return tf.data.Dataset.from_tensors(
    collections.OrderedDict(x=SERVER[0], y=SERVER[1])
  )


def builder(process, **more):
  """Returns a builder of rounds with one step, of all examples at once."""
  sgd = tff.learning.optimizers.build_sgdm(RATE)
  own = {
    'client_optimizer': sgd,
    'server_optimizer': sgd,
    'batch_size': SIZE,
    'local_epochs': 1,
    'server_batch_size': SIZE,
    'server_epochs': 1,
    'server_data': server_data,
    'data_spec': _SPEC,
  }
  return federations.builder(
    process, lambda norm: _linear(norm == 'batch'), **{**own, **more}
  )


def client(index, scale=1.0):
  x, labels = arrays(index, scale=scale)
  examples = collections.OrderedDict(
    x=x, y=np.full(SIZE, -1, np.int32), true_y=labels
  )
  return federations.in_context(examples, index)


def start():
  rng = np.random.default_rng(7)
  return [rng.normal(size=(_FEATURES, _CLASSES)), np.zeros(_CLASSES)]


def begin(process, weights):
  """Returns the process's first state, with these weights."""
  state = process.initialize()
  of_state = process.get_model_weights(state)
  return process.set_model_weights(
    state,
    tff.learning.models.ModelWeights(
      [np.float32(w) for w in weights], of_state.non_trainable
    ),
  )


def step(weights, x, y):
  return softmax_regression.step(weights, x, y, RATE)


def assert_weights(process, state, expected, tolerance=1e-5):
  actual = process.get_model_weights(state).trainable
  assert_close(actual, expected, atol=tolerance)
