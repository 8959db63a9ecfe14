"""Models of several inputs, against the same model of one joined input."""

import collections
import functools

import costs
import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, largest_differences
from sklearn import datasets as sklearn_datasets

import tff_ssl
from tff_ssl.models import functional

pytestmark = pytest.mark.usefixtures('tff_context')

layers = tf.keras.layers

_NAMES = ('left', 'right')
_SIZES = (24, 40)
_DATA = sklearn_datasets.load_digits()
_X = np.float32(_DATA.data / 16)
_Y = np.int32(_DATA.target)
_PLAN = tff_ssl.TrainingPlan(
  optimizer=tff.learning.optimizers.build_sgdm(0.1), batch_size=10, steps=3
)


def _split(x):
  return collections.OrderedDict(
    zip(_NAMES, np.split(x, [_SIZES[0]], axis=1), strict=True)
  )


def _client(part, split, some_labels=False):
  x, y = _X[part], _Y[part]
  if some_labels:
    y = np.where(np.arange(len(y)) % 3 == 0, y, -1)
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=_split(x) if split else x, y=np.int32(y))
  ).batch(7)


def _in_context(part, split):
  """A client with a number, from which its randomness derives."""
  context = collections.OrderedDict(
    client=tf.constant([part.start]), group=tf.constant([0])
  )
  return collections.OrderedDict(
    examples=_client(part, split, some_labels=True),
    context=tf.data.Dataset.from_tensor_slices(context),
  )


def two_inputs(norm=False):
  inputs = [
    tf.keras.Input((size,), name=name)
    for name, size in zip(_NAMES, _SIZES, strict=True)
  ]
  return tf.keras.Model(inputs, _classify(layers.concatenate(inputs), norm))


def one_input(norm=False):
  inputs = tf.keras.Input((64,))
  return tf.keras.Model(inputs, _classify(inputs, norm))


def _classify(features, norm):
  hidden = layers.Dense(12, activation='relu')(features)
  if norm:
    hidden = layers.BatchNormalization()(hidden)
  return layers.Dense(10)(hidden)


_PARTS = [slice(start, start + 30) for start in (0, 30, 60)]


def _server_data(split):
  return tff.tensorflow.computation(lambda: _client(slice(90, 140), split))


_ONE_GROUP = {'num_groups': 1}
_CRL = tff_ssl.ConsistencyRegularization(tff_ssl.PlainViews(), threshold=0.05)
_GROUPING = {**_ONE_GROUP, 'client_objective': _CRL}


@pytest.mark.parametrize(
  'build, has_server, norm, more',
  costs.rest_in(
    'parts',
    [
      (tff_ssl.build_fed_avg, False, False, {}),
      (tff_ssl.build_grouping_ssfl, True, False, _GROUPING),
      (tff_ssl.build_grouping_ssfl, True, True, _GROUPING),
      (tff_ssl.build_grouping_robust, True, False, _ONE_GROUP),
      (tff_ssl.build_grouping_at_clients, False, False, _ONE_GROUP),
      (tff_ssl.build_fedlabel, False, False, {}),
    ],
    dear=True,
  ),
  ids=['fed_avg', 'grouping', 'joint', 'robust', 'at_clients', 'fedlabel'],
)
def test_two_inputs_are_one_joined(build, has_server, norm, more):
  weights = []
  for keras_model, split in ((one_input, False), (two_inputs, True)):
    process = build(
      lambda keras_model=keras_model: keras_model(norm),
      **(
        {'server': tff_ssl.ServerPlan(data=_server_data(split))}
        if has_server
        else {}
      ),
      **more,
      data_spec=tff_ssl.ClientDataSpec(
        _client(_PARTS[0], split).element_spec, in_context=True
      ),
      views=tff_ssl.PlainViews(),
      client_training=_PLAN,
    )
    clients = [_in_context(part, split) for part in _PARTS]
    state = federations.after(process, clients, 2)
    weights.append(process.get_model_weights(state))
  initial = process.get_model_weights(process.initialize())
  one, two = weights
  for a, b in zip(*map(tf.nest.flatten, weights), strict=True):
    assert a.shape == b.shape
  assert_close(two, one, rtol=1e-4, atol=1e-5)
  assert norm or min(largest_differences(two, initial)) > 1e-3


@pytest.mark.parts
def test_stock_tff_gives_the_same():
  """One minibatch a client, as there is nothing to shuffle then."""
  split = [_client(part, True).unbatch().batch(30) for part in _PARTS]

  def model_fn():
    tf.keras.utils.set_random_seed(1)
    return tff.learning.models.from_keras_model(
      two_inputs(),
      input_spec=split[0].element_spec,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )

  sgd = tff.learning.optimizers.build_sgdm(0.1)
  stock = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn, client_optimizer_fn=sgd
  )
  ours = tff_ssl.build_fed_avg(
    model_fn,
    views=tff_ssl.PlainViews(),
    client_training=tff_ssl.TrainingPlan(
      optimizer=sgd, batch_size=30, epochs=1
    ),
  )
  state = ours.initialize()
  same = stock.set_model_weights(
    stock.initialize(), ours.get_model_weights(state)
  )
  found = ours.get_model_weights(ours.next(state, split).state)
  expected = stock.get_model_weights(stock.next(same, split).state)
  assert_close(found.trainable, expected.trainable, rtol=1e-5, atol=1e-6)


@pytest.mark.parts
def test_the_order_of_names_does_not_matter():
  def client(part):
    x = _split(_X[part])
    return tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=collections.OrderedDict((name, x[name]) for name in reversed(_NAMES)),
        y=_Y[part],
      )
    ).batch(7)

  process, expected = (
    tff_ssl.build_fed_avg(
      model,
      data_spec=data.element_spec,
      views=tff_ssl.PlainViews(),
      client_training=_PLAN,
    )
    for model, data in (
      (two_inputs, client(_PARTS[0])),
      (one_input, _client(_PARTS[0], False)),
    )
  )
  # One minibatch of all, as chance is not the same for other bits.
  part = slice(0, 10)
  found = federations.trained(process, [client(part)])
  wanted = federations.trained(expected, [_client(part, False)])
  assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  'names, message',
  [
    (('left', 'wrong'), 'has the inputs left, right, but .* left, wrong'),
    (('left',), r'has 2 inputs \(left, right\), but examples have 1'),
  ],
)
def test_inputs_of_other_names(names, message):
  spec = {name: tf.TensorSpec([None, 24]) for name in names}
  with pytest.raises(ValueError, match=message):
    functional.from_keras(two_inputs, spec)


def test_a_batch_of_another_form():
  model = functional.from_keras(two_inputs)
  weights = model.initial_weights(0)
  with pytest.raises(ValueError, match=r'takes it, \{left: \(24,\), right: '):
    model.predict(*weights, _X[:3], training=False)
  logits, _ = model.predict(*weights, _split(_X[:3]), training=False)
  joined = functional.from_keras(one_input)
  expected, _ = joined.predict(*weights, _X[:3], training=False)
  np.testing.assert_allclose(logits, expected, atol=1e-6)


@pytest.mark.parametrize(
  'build, message',
  [
    (
      functools.partial(
        tff_ssl.build_semifl, server=tff_ssl.ServerPlan(data=_server_data(True))
      ),
      'Mixup needs one tensor',
    ),
    (tff_ssl.build_ssjo, 'A proxy task needs one tensor'),
  ],
)
def test_methods_that_mix_inputs_refuse_several(build, message):
  encoder = tf.keras.Sequential([layers.InputLayer((12,)), layers.Dense(10)])
  inputs = two_inputs().inputs
  features = layers.Dense(12)(layers.concatenate(inputs))
  model = tff_ssl.join(tf.keras.Model(inputs, features), encoder)
  with pytest.raises(TypeError, match=rf'{message}.*\(left, right\): join'):
    build(
      model,
      data_spec=_client(_PARTS[0], True).element_spec,
      views=tff_ssl.PlainViews(),
    )
