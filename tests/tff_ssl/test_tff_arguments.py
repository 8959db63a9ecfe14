"""What builders take beside what TFF's own tests give to theirs.

Those are cases of `tests/tff_parity`.
"""

import collections

import costs
import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, assert_same
from sklearn import datasets as sklearn_datasets

import tff_ssl

pytestmark = pytest.mark.usefixtures('tff_context')

layers = tf.keras.layers

_DIGITS = sklearn_datasets.load_digits()
_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 64], tf.float32), y=tf.TensorSpec([None, 1], tf.int32)
)
_LOSSES = tf.keras.losses
_SGD = tff.learning.optimizers.build_sgdm(learning_rate=0.02)
_PLAN = tff_ssl.TrainingPlan(optimizer=_SGD, batch_size=20, epochs=1)


# As in TFF's tutorial "Federated Learning for Image Classification".
def create_keras_model():
  return tf.keras.models.Sequential(
    [
      layers.InputLayer(input_shape=(64,)),
      layers.Dense(10, kernel_initializer='zeros'),
      layers.Softmax(),
    ]
  )


def create_model_with_logits():
  return tf.keras.models.Sequential(
    [
      layers.InputLayer(input_shape=(64,)),
      layers.Dense(10, kernel_initializer='zeros'),
    ]
  )


def model_fn(**changes):
  return tff.learning.models.from_keras_model(
    create_keras_model(),
    **{
      'input_spec': _SPEC,
      'loss': tf.keras.losses.SparseCategoricalCrossentropy(),
      'metrics': [tf.keras.metrics.SparseCategoricalAccuracy()],
      **changes,
    },
  )


def make_client(part, batch=20):
  def batch_format_fn(pixels, label):
    return collections.OrderedDict(
      x=tf.reshape(pixels, [-1, 64]), y=tf.reshape(label, [-1, 1])
    )

  images = np.float32(_DIGITS.images[part] / 16)
  labels = np.int32(_DIGITS.target[part])
  return (
    tf.data.Dataset.from_tensor_slices((images, labels))
    .batch(batch)
    .map(batch_format_fn)
  )


_READY = create_model_with_logits()
CLIENTS = [make_client(slice(start, start + 20)) for start in (0, 20, 40)]


def build(model=model_fn, **given):
  return tff_ssl.build_fed_avg(
    model, **{'views': tff_ssl.PlainViews(), 'client_training': _PLAN, **given}
  )


def weights_after(process, rounds=2):
  return federations.trained(process, CLIENTS, rounds)


@costs.shared
def weights_of_reference():
  return weights_after(build())


def create_functional_model():
  return tff.learning.models.functional_model_from_keras(
    create_model_with_logits(),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=_SPEC,
  )


@pytest.mark.parts
@pytest.mark.parametrize(
  'create',
  [lambda: create_keras_model, create_keras_model, create_functional_model],
  ids=['function', 'instance', 'functional'],
)
def test_models_of_all_forms(create):
  model, spec = create(), CLIENTS[0].element_spec
  if not isinstance(model, tff.learning.models.FunctionalModel):
    # What is no model of TFF must say that it ends in a softmax.
    with pytest.raises(ValueError, match='from_logits'):
      build(model, data_spec=spec)
    model = tff_ssl.from_keras(model, from_logits=False)
  found = weights_after(build(model, data_spec=spec))
  assert_close(found, weights_of_reference(), rtol=1e-5, atol=1e-6)


def test_an_instance_begins_with_its_weights():
  model = create_model_with_logits()
  weights = [np.full([64, 10], 0.5, np.float32), np.ones(10, np.float32)]
  model.set_weights(weights)
  process = build(model, data_spec=CLIENTS[0].element_spec)
  initial = process.get_model_weights(process.initialize()).trainable
  assert_same(initial, weights)
  with pytest.raises(ValueError, match='same architecture'):
    tff_ssl.from_keras(
      model, initial_weights=tff.learning.models.ModelWeights(weights[:1], [])
    )


@pytest.mark.parts
def test_labels_at_the_server_and_stock_names():
  """What is added for semi-supervision: server data and views."""
  process = tff_ssl.build_grouping_ssfl(
    model_fn,
    client_optimizer_fn=_SGD,
    server=tff_ssl.ServerPlan(
      data=tff.tensorflow.computation(lambda: make_client(slice(100, 140)))
    ),
    views=tff_ssl.VectorViews((0.3,) * 64, (0.4,) * 64),
    group_assignment='in_process',
  )
  found = weights_after(process, rounds=1)
  assert np.abs(found[0]).max() > 0


@pytest.mark.parametrize(
  'model, error, message',
  [
    (model_fn(), TypeError, 'give the function that makes it'),
    (None, TypeError, 'Give the model once'),
    (lambda: _READY, ValueError, 'the same Keras model each time'),
    (
      lambda: model_fn(
        loss=_LOSSES.SparseCategoricalCrossentropy(ignore_class=-1)
      ),
      ValueError,
      'ignore_class=-1',
    ),
    (
      lambda: model_fn(loss=_LOSSES.MeanSquaredError()),
      *(ValueError, 'the loss MeanSquaredError'),
    ),
    (
      lambda: model_fn(metrics=[tf.keras.metrics.Recall()]),
      *(ValueError, 'the metrics Recall'),
    ),
    (tf.keras.Sequential, TypeError, 'model is a type'),
    (create_model_with_logits, TypeError, 'data_spec is missing'),
  ],
)
def test_models_that_are_refused(model, error, message):
  with pytest.raises(error, match=message):
    build(model)


@pytest.mark.parametrize(
  'name, value, message',
  [
    ('client_optimizer_fn', _SGD, 'client_optimizer_fn and client_training ex'),
    ('server_optimizer_fn', tf.keras.optimizers.SGD, 'server.* gives a SGD'),
    ('client_weighting', lambda outputs: 1.0, "give 'examples' or 'uniform'"),
  ],
)
def test_arguments_that_are_refused(name, value, message):
  with pytest.raises(TypeError, match=message):
    build(model_fn, **{name: value})


@pytest.mark.dear
def test_the_call_of_stock_tff():
  """Positions, names and `None` as build_weighted_fed_avg takes them."""
  expected = weights_after(
    build(client_training=tff_ssl.TrainingPlan(optimizer=_SGD))
  )
  for process in (
    tff_ssl.build_fed_avg(model_fn, _SGD, views=tff_ssl.PlainViews()),
    tff_ssl.build_fed_avg(
      model_fn=model_fn,
      client_optimizer_fn=lambda: _SGD,
      server_optimizer_fn=None,
      client_weighting=None,
      model_aggregator=None,
      data_spec=None,
      views=tff_ssl.PlainViews(),
    ),
  ):
    found = weights_after(process)
    np.testing.assert_equal(found, expected)


def _server_data():
  examples = collections.OrderedDict(
    x=tf.zeros([2, 64]), y=tf.zeros([2, 1], tf.int32)
  )
  return tf.data.Dataset.from_tensors(examples)


@pytest.mark.parts
@pytest.mark.parametrize('builder', ['fed_avg', 'fixmatch', 'semifl'])
@pytest.mark.parametrize('kind', ['one', 'sequence', 'list'])
def test_outputs_of_no_classifier_are_refused_by_builders(builder, kind):
  inputs = layers.Input((64,))
  outputs = {
    'one': layers.Dense(1)(inputs),
    'sequence': layers.Reshape((5, 2))(layers.Dense(10)(inputs)),
    'list': [layers.Dense(10)(inputs), layers.Dense(10)(inputs)],
  }[kind]
  server = tff_ssl.ServerPlan(data=tff.tensorflow.computation(_server_data))
  with pytest.raises(ValueError, match='The model gives .*let it end in a sin'):
    getattr(tff_ssl, f'build_{builder}')(
      tff_ssl.from_keras(tf.keras.Model(inputs, outputs)),
      data_spec=_SPEC,
      views=tff_ssl.VectorViews((0.0,) * 64, (1.0,) * 64),
      **({'server': server} if builder == 'semifl' else {}),
    )
