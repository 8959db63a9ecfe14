"""What the server trains on, with which seeds, and its steps in numpy."""

import collections

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close

from tff_ssl import objectives, optimizers, plans, randomness, stacks
from tff_ssl.augmentation import views
from tff_ssl.templates import local_training, server_training


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

  model = softmax_regression.model(3, 2)

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
  data = federations.examples(0, 7, (3,), 2)
  model = federations.model(3, 2)
  training = local_training.LocalTraining(
    model,
    objectives.Supervised(views.PlainViews()),
    plans.TrainingPlan(
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

  x, y = data.values()
  weights, velocity, losses = start.trainable, [0, 0], []
  for _ in range(4):
    found = softmax_regression.probabilities(weights, x)
    losses.append(-np.log(found[range(7), y]).sum())
    gradient = softmax_regression.gradient(weights, x, y)
    velocity = [0.9 * v + g for v, g in zip(velocity, gradient, strict=True)]
    weights = [w - 0.5 * v for w, v in zip(weights, velocity, strict=True)]
  actual = two_rounds()
  assert_close([actual['kernel'], actual['bias']], weights, atol=1e-5)
  np.testing.assert_allclose(
    actual['loss'], [losses[2] + losses[3], 2 * 7], rtol=1e-5
  )


def test_data_must_be_a_computation_of_a_sequence_without_arguments():
  scalar = tff.tensorflow.computation(lambda: tf.constant(1))
  with_argument = tff.tensorflow.computation(
    lambda n: tf.data.Dataset.range(n), np.int64
  )
  for message, given in (
    ('server.data must be', [None, 'a data set', [1, 2]]),
    ('wrap the data set', [scalar, with_argument]),
  ):
    for data in given:
      with pytest.raises(TypeError, match=message):
        server_training.ServerTraining(_Recording(), data)


@pytest.mark.parametrize('labels', [[-1, -1], []])
def test_data_without_a_label_end_the_round(labels):
  class Server(server_training.ServerTraining):
    """One whose data are read in a graph without TFF."""

    def __post_init__(self):
      pass

  def server_data():
    y = tf.constant(labels, tf.int32)
    data = collections.OrderedDict(x=tf.zeros([len(labels), 3]), y=y)
    return tf.data.Dataset.from_tensor_slices(data).batch(3)

  server = Server(_Recording(), server_data)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    read = server.read_examples()['y']
    with pytest.raises(tf.errors.InvalidArgumentError, match='has no example'):
      session.run(read)


def test_data_of_a_type_without_examples():
  @tff.tensorflow.computation
  def server_data():
    return tf.data.Dataset.from_tensors(federations.examples(0, 0, (3,), 2))

  server = server_training.ServerTraining(_Recording(), server_data)
  with tf.Graph().as_default(), pytest.raises(ValueError, match='has no examp'):
    server.read_examples()
