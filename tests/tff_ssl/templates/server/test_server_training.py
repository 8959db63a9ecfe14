"""What the server trains on, with which seeds, and its steps in numpy."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import objectives, optimizers, randomness, training_plan
from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import local_training, stacks
from tff_ssl.templates.server import server_training
from tff_ssl.testing import tiny_models


def test_ratios_are_nan_where_nothing_was_counted():
  values = server_training.ratios(
    collections.OrderedDict(
      one=tf.constant([3.0, 4.0]), none=tf.constant([0.0, 0.0])
    )
  )
  assert float(values['one']) == 0.75
  assert np.isnan(values['none'])


class _Recording:
  """A training that returns what it was given."""

  model = tiny_models.softmax_regression(3, 2)

  def run(self, start, examples, *, seed, round_num, optimizer_state):
    return collections.OrderedDict(
      seed=seed, round=round_num, state=optimizer_state, y=examples['y']
    )


class _FakeData:
  """A server set that works without TFF."""

  type_signature = tff.FunctionType(None, tff.SequenceType(np.int32))

  def __call__(self):
    examples = collections.OrderedDict(x=tf.zeros([7, 3]), y=tf.range(7))
    return tf.data.Dataset.from_tensor_slices(examples).batch(3)


@pytest.mark.parametrize('num_replicas', [1, 2])
def test_its_seed_is_the_servers(num_replicas):
  server = server_training.ServerTraining(
    _Recording(), _FakeData(), num_replicas
  )
  states = tf.range(10, 10 + num_replicas)
  seen = server.run(None, states, seed=tf.constant(3), round_num=tf.constant(5))
  expected = [own := randomness.server_seed(3, 5)]
  if num_replicas == 2:
    replicas = randomness.fold_in(own, randomness.Purpose.REPLICA)
    expected = [randomness.fold_in(replicas, i) for i in range(2)]
  np.testing.assert_array_equal(seen['seed'], np.stack(expected))
  np.testing.assert_array_equal(seen['round'], [5] * num_replicas)
  np.testing.assert_array_equal(seen['state'], states)
  np.testing.assert_array_equal(seen['y'], [range(7)] * num_replicas)


@pytest.mark.parts
def test_steps_of_eq_3_with_momentum_across_rounds(tff_context):
  rng = np.random.default_rng(0)
  data = collections.OrderedDict(
    x=rng.normal(size=(7, 3)).astype(np.float32),
    y=rng.integers(0, 2, 7).astype(np.int32),
  )
  model = functional.from_keras(dense.dense((3,), 2, hidden=()))
  training = local_training.LocalTraining(
    model,
    objectives.Supervised(views.PlainViews()),
    training_plan.TrainingPlan(
      optimizers.build_nesterov_sgd(0.5, momentum=0.9, nesterov=False),
      batch_size=7,
      steps=2,
    ),
  )

  @tff.tensorflow.computation
  def server_data():
    return tf.data.Dataset.from_tensor_slices(data).batch(3)

  server = server_training.ServerTraining(training, server_data)
  start = model.initial_weights(0)

  @tff.tensorflow.computation
  def two_rounds():
    weights, state = start, server.initial_optimizer_state()
    for round_num in range(2):
      result = server.run(
        weights, state, seed=tf.constant(3), round_num=tf.constant(round_num)
      )
      weights = stacks.row(result.weights, 0)
      state = result.optimizer_state
    return collections.OrderedDict(
      kernel=weights.trainable[0],
      bias=weights.trainable[1],
      loss=result.metrics['loss'][0],
    )

  x = np.concatenate([data['x'], np.ones([7, 1])], axis=1)
  onehot = np.eye(2)[data['y']]
  weights = np.concatenate([start.trainable[0], start.trainable[1][None]])
  velocity = np.zeros_like(weights)
  losses = []
  for _ in range(4):
    exponentials = np.exp(x @ weights)
    probabilities = exponentials / exponentials.sum(1, keepdims=True)
    losses.append(-(onehot * np.log(probabilities)).sum())
    velocity = 0.9 * velocity + x.T @ (probabilities - onehot) / 7
    weights = weights - 0.5 * velocity
  actual = two_rounds()
  np.testing.assert_allclose(actual['kernel'], weights[:-1], atol=1e-5)
  np.testing.assert_allclose(actual['bias'], weights[-1], atol=1e-5)
  np.testing.assert_allclose(
    actual['loss'], [losses[2] + losses[3], 2 * 7], rtol=1e-5
  )


@pytest.mark.parametrize('data', [None, 'a data set', [1, 2]])
def test_data_must_be_a_computation(data):
  with pytest.raises(TypeError, match='server_data must be'):
    server_training.ServerTraining(_Recording(), data)


def test_data_must_be_a_sequence_without_arguments():
  scalar = tff.tensorflow.computation(lambda: tf.constant(1))
  with_argument = tff.tensorflow.computation(
    lambda n: tf.data.Dataset.range(n), np.int64
  )
  for data in (scalar, with_argument):
    with pytest.raises(TypeError, match='wrap the data set'):
      server_training.ServerTraining(_Recording(), data)
