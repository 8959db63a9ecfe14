"""What the server trains on, and with which seeds.

That its steps are those of Eq. 3, momentum and all, whole rounds show.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import randomness
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
