"""Converted models beside Keras models that are made in graphs.

Those, which every process of `tff.learning` makes when its `model_fn` builds a
Keras model, change the bases of Keras' classes for the whole program.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.models import functional

layers = tf.keras.layers
ModelWeights = tff.learning.models.ModelWeights

_COUNT, _FEATURES, _CLASSES = 8, 5, 3
_MOMENTUM, _EPSILON = 0.9, 1e-3


def _build():
  inputs = tf.keras.Input((_FEATURES,))
  hidden = tf.keras.Sequential(
    [
      layers.Dense(4),
      layers.BatchNormalization(momentum=_MOMENTUM, epsilon=_EPSILON),
      layers.Dropout(0.5),
    ]
  )(inputs)
  return tf.keras.Model(inputs, layers.Dense(_CLASSES)(hidden))


def _build_in_graph():
  """As TFF does; the result shows that Keras' classes did change."""
  with tf.Graph().as_default():
    keras_model = _build()
  assert isinstance(keras_model, tf.compat.v1.keras.Model)


def _numpy_weights():
  rng = np.random.default_rng(3)
  shapes = [[_FEATURES, 4], [4], [4], [4], [4, _CLASSES], [_CLASSES]]
  trainable = [rng.normal(size=s).astype(np.float32) for s in shapes]
  mean = rng.normal(size=4).astype(np.float32)
  variance = rng.uniform(0.5, 2, 4).astype(np.float32)
  return ModelWeights(trainable, [mean, variance])


_WEIGHTS = _numpy_weights()
_X = (
  np.random.default_rng(4).normal(size=(_COUNT, _FEATURES)).astype(np.float32)
)


def _numpy_outputs():
  kernel, bias, gamma, beta, last_kernel, last_bias = _WEIGHTS.trainable
  mean, variance = _WEIGHTS.non_trainable
  hidden = (_X @ kernel + bias - mean) / np.sqrt(variance + _EPSILON)
  return (hidden * gamma + beta) @ last_kernel + last_bias


def _numpy_new_mean():
  kernel, bias = _WEIGHTS.trainable[:2]
  batch_mean = (_X @ kernel + bias).mean(axis=0)
  return _MOMENTUM * _WEIGHTS.non_trainable[0] + (1 - _MOMENTUM) * batch_mean


def _use(model):
  """Outputs, the gradient of the last bias, and the trained moving mean."""
  trainable, non_trainable = tf.nest.map_structure(
    tf.constant, [_WEIGHTS.trainable, _WEIGHTS.non_trainable]
  )
  with tf.GradientTape() as tape:
    tape.watch(trainable)
    outputs, _ = model.predict(trainable, non_trainable, _X, training=False)
  gradient = tape.gradient(outputs, trainable)[-1]
  _, state = model.predict(
    trainable, non_trainable, _X, training=True, seed=tf.constant([1, 2])
  )
  return outputs, gradient, state[0]


def _in_tff(model):
  return tff.tensorflow.computation(lambda: _use(model))()


_WAYS = {
  'eager': _use,
  'tf.function': lambda model: tf.function(
    lambda: _use(model), autograph=False
  )(),
  'tff': _in_tff,
}


def _assert_right(results):
  outputs, gradient, mean = results
  np.testing.assert_allclose(outputs, _numpy_outputs(), atol=1e-5)
  np.testing.assert_allclose(gradient, np.full(_CLASSES, _COUNT), atol=1e-6)
  np.testing.assert_allclose(mean, _numpy_new_mean(), atol=1e-5)


@pytest.fixture(autouse=True)
def keras_as_it_was():
  yield
  _build()


@pytest.mark.parts
@pytest.mark.parametrize('way', _WAYS)
@pytest.mark.parametrize('order', ['graph first', 'graph last', 'both'])
def test_either_order(tff_context, order, way):
  if order != 'graph last':
    _build_in_graph()
  model = functional.from_keras(_build)
  if order != 'graph first':
    _build_in_graph()
  _assert_right(_WAYS[way](model))


@pytest.mark.parts
def test_all_uses_in_turn(tff_context):
  model = functional.from_keras(_build)
  for way in ['tff', 'eager', 'tf.function', 'eager', 'tff']:
    _build_in_graph()
    _assert_right(_WAYS[way](model))


def test_ready_made_model_after_a_graph_model():
  keras_model = _build()
  _build_in_graph()
  _assert_right(_use(functional.from_keras(keras_model)))


def test_keras_model_of_the_same_graph_stays_usable():
  model = functional.from_keras(_build)
  with tf.Graph().as_default():
    keras_model = _build()
    results = _use(model)
    theirs = keras_model(tf.constant(_X), training=False)
    session = tf.compat.v1.keras.backend.get_session()
    for variable, value in zip(
      [*keras_model.trainable_weights, *keras_model.non_trainable_weights],
      [*_WEIGHTS.trainable, *_WEIGHTS.non_trainable],
      strict=True,
    ):
      variable.load(value, session)
    _assert_right(session.run(results))
    np.testing.assert_allclose(session.run(theirs), _numpy_outputs(), atol=1e-5)


def test_a_failed_call_leaves_keras_as_it_was():
  model = functional.from_keras(_build)
  _build_in_graph()
  with pytest.raises(ValueError, match='seed is None'):
    tf.function(lambda: model.predict(*_WEIGHTS, _X, training=True))()
  assert issubclass(tf.keras.Sequential, tf.compat.v1.keras.Model)


# TFF warns of batch normalisation, which is here for its type only.
@pytest.mark.parts
@pytest.mark.filterwarnings('ignore:Batch Normalization')
def test_tffs_own_evaluation_after_and_before(tff_context):
  model = functional.from_keras(_build)
  _assert_right(_use(model))
  _assert_right(_in_tff(model))
  labels = np.arange(_COUNT, dtype=np.int32) % _CLASSES
  client = tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=_X, y=labels)
  ).batch(_COUNT)

  def model_fn():
    return tff.learning.models.from_keras_model(
      _build(),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
      input_spec=client.element_spec,
    )

  process = tff.learning.algorithms.build_fed_eval(model_fn)
  state = process.set_model_weights(process.initialize(), _WEIGHTS)
  metrics = process.next(state, [client]).metrics['client_work']['eval']
  metrics = metrics['current_round_metrics']
  logits = _numpy_outputs()
  losses = np.log(np.exp(logits).sum(axis=1)) - logits[range(_COUNT), labels]
  assert metrics['loss'] == pytest.approx(losses.mean(), abs=1e-5)
  assert metrics['sparse_categorical_accuracy'] == pytest.approx(
    (logits.argmax(axis=1) == labels).mean()
  )
  _assert_right(_use(model))
  _assert_right(_in_tff(model))
