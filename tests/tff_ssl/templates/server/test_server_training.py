"""The server's training against numpy."""

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

ModelWeights = tff.learning.models.ModelWeights

_FEATURES, _CLASSES, _SIZE = 3, 2, 7


def test_ratios_are_nan_where_nothing_was_counted():
  values = server_training.ratios(
    collections.OrderedDict(
      one=tf.constant([3.0, 4.0]), none=tf.constant([0.0, 0.0])
    )
  )
  assert float(values['one']) == 0.75
  assert np.isnan(values['none'])


def _server_set():
  rng = np.random.default_rng(0)
  return collections.OrderedDict(
    x=rng.normal(size=(_SIZE, _FEATURES)).astype(np.float32),
    y=rng.integers(0, _CLASSES, _SIZE).astype(np.int32),
  )


@tff.tensorflow.computation
def _server_data():
  return tf.data.Dataset.from_tensor_slices(_server_set()).batch(3)


@pytest.fixture(scope='module')
def training():
  model = functional.from_keras(dense.dense((_FEATURES,), _CLASSES, hidden=()))
  return local_training.LocalTraining(
    model,
    objectives.Supervised(views.PlainViews()),
    training_plan.TrainingPlan(
      optimizers.build_nesterov_sgd(0.5, momentum=0.9, nesterov=False),
      batch_size=_SIZE,
      steps=2,
    ),
  )


class TestServerTraining:
  def test_steps_of_eq_3_with_momentum_across_rounds(
    self, tff_context, training
  ):
    server = server_training.ServerTraining(training, _server_data)
    start = training.model.initial_weights(0)

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

    data = _server_set()
    x = np.concatenate([data['x'], np.ones([_SIZE, 1])], axis=1)
    onehot = np.eye(_CLASSES)[data['y']]
    weights = np.concatenate([start.trainable[0], start.trainable[1][None]])
    velocity = np.zeros_like(weights)
    losses = []
    for _ in range(4):
      exponentials = np.exp(x @ weights)
      probabilities = exponentials / exponentials.sum(1, keepdims=True)
      losses.append(-(onehot * np.log(probabilities)).sum())
      velocity = 0.9 * velocity + x.T @ (probabilities - onehot) / _SIZE
      weights = weights - 0.5 * velocity
    actual = two_rounds()
    np.testing.assert_allclose(actual['kernel'], weights[:-1], atol=1e-5)
    np.testing.assert_allclose(actual['bias'], weights[-1], atol=1e-5)
    np.testing.assert_allclose(
      actual['loss'], [losses[2] + losses[3], 2 * _SIZE], rtol=1e-5
    )

  @pytest.mark.parametrize('num_replicas', [1, 2])
  def test_its_seed_is_the_servers(self, monkeypatch, training, num_replicas):
    def run(self, start, examples, *, seed, round_num, optimizer_state):
      return collections.OrderedDict(
        seed=seed, round=round_num, state=optimizer_state
      )

    monkeypatch.setattr(local_training.LocalTraining, 'run', run)
    server = server_training.ServerTraining(training, _FakeData(), num_replicas)
    states = tf.range(10, 10 + num_replicas)
    seen = server.run(
      None, states, seed=tf.constant(3), round_num=tf.constant(5)
    )
    own = randomness.server_seed(3, 5)
    expected = (
      [own]
      if num_replicas == 1
      else [
        randomness.fold_in(
          randomness.fold_in(own, randomness.Purpose.REPLICA), i
        )
        for i in range(2)
      ]
    )
    np.testing.assert_array_equal(seen['seed'], np.stack(expected))
    np.testing.assert_array_equal(seen['round'], [5] * num_replicas)
    np.testing.assert_array_equal(seen['state'], states)

  @pytest.mark.parametrize('data', [None, 'a data set', [1, 2]])
  def test_data_must_be_a_computation(self, training, data):
    with pytest.raises(TypeError, match='server_data must be'):
      server_training.ServerTraining(training, data)

  def test_data_must_be_a_sequence_without_arguments(self, training):
    scalar = tff.tensorflow.computation(lambda: tf.constant(1))
    with_argument = tff.tensorflow.computation(
      lambda n: tf.data.Dataset.range(n), np.int64
    )
    for data in (scalar, with_argument):
      with pytest.raises(TypeError, match='wrap the data set'):
        server_training.ServerTraining(training, data)


class _FakeData:
  """A server set that works without TFF."""

  type_signature = tff.FunctionType(None, tff.SequenceType(np.int32))

  def __call__(self):
    return tf.data.Dataset.from_tensor_slices(_server_set()).batch(_SIZE)
