"""What a client reads of its helpers, and what it leaves for others."""

import collections
from types import SimpleNamespace

import federations
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from comparing import are_equal

from tff_ssl.models import decomposed, functional
from tff_ssl.objectives.maths import losses
from tff_ssl.templates import client_state, client_task, local_training
from tff_ssl.templates.helper_clients import helper_training

_FEATURES, _CLASSES = 4, 3
_SPEC = federations.data_spec((_FEATURES,), in_context=True)


class Recording:
  """A training that returns its start, and keeps what it was called with."""

  run_task = local_training.LocalTraining.run_task

  def run(self, start, examples, **arguments):
    self.start, self.arguments = start, arguments
    metrics = collections.OrderedDict(loss=tf.zeros([2]))
    return local_training.TrainingResult(
      start, (), metrics, tf.constant(0.0), tf.zeros([2])
    )


@pytest.fixture(scope='module')
def parts():
  return decomposed.Decomposition(
    federations.model(_FEATURES, _CLASSES, 'batch', hidden=(5,))
  )


@pytest.fixture
def build(parts, tmp_path):
  def build_training(**arguments):
    defaults = {
      'data_spec': _SPEC,
      'client_state_dir': str(tmp_path),
      'num_clients': 6,
      'num_helpers': 2,
      'helper_interval': 1,
      'noise_examples': 2,
    }
    return helper_training.build(
      parts, Recording(), **{**defaults, **arguments}
    )

  return build_training


def values(spec, seed):
  rng = np.random.default_rng(seed)
  return tf.nest.map_structure(
    lambda s: tf.constant(rng.uniform(0.1, 1, s.shape), s.dtype), spec
  )


def task_of(training, weights, helpers, round_num=5, seed=7):
  chosen = training.table.initial()['chosen']
  chosen['owner'] = tf.range(6)
  chosen['helpers'] = tf.constant([[-1, -1]] * 2 + [helpers] + [[-1, -1]] * 3)
  return client_task.ClientTask(
    weights=weights,
    round=tf.constant(round_num),
    seed=tf.constant(seed),
    hparams={},
    examples={},
    client=tf.constant(2),
    group=tf.constant(-1),
    shared_state=chosen,
  )


def leave(folder, client, round_num, state):
  place = SimpleNamespace(
    client=tf.constant(client),
    round=tf.constant(round_num),
    seed=tf.constant(7),
  )
  client_state.write(folder, place, state, tf.constant(True))


def row_of(result):
  """The row of client 2 of the table, which is all that it sends of it."""
  rows, taken = result.shared_change
  assert taken.numpy().tolist() == [0, 0, 1, 0, 0, 0]
  assert rows['owner'].numpy().tolist() == [0, 0, 2, 0, 0, 0]
  outputs = rows['outputs'].numpy()
  assert not np.delete(outputs, 2, axis=0).any()
  return outputs[2]


def same(a, b):
  return all(are_equal(a, b))


def test_a_client_reads_exactly_its_helpers_newest_earlier_models(
  parts, build, tmp_path
):
  training = build()
  spec = parts.model.weights_spec
  models = {
    (client, round_num): values(spec, 100 * client + round_num)
    for client, round_num in ((4, 1), (4, 3), (4, 5), (1, 2), (0, 4))
  }
  for (client, round_num), model in models.items():
    leave(str(tmp_path), client, round_num, model)
  weights = values(parts.joint.weights_spec, 0)
  result = training.run(task_of(training, weights, [4, 1]), weights)
  peers = training.training.arguments['anchors']
  # Client 4's version of round 5 is of the present round, and not read.
  for helper, left in zip(
    peers.helpers, (models[4, 3], models[1, 2]), strict=True
  ):
    assert same(parts.total(parts.put(helper, 'psi')), left)
  assert peers.present.numpy().tolist() == [True, True]
  assert same(peers.sigma, parts.separate(weights)[0])
  assert same(training.training.start, parts.take(weights, 'psi'))
  np.testing.assert_array_equal(result.metrics['helpers'], [2, 1])


def test_without_helpers_none_counts(parts, build):
  training = build()
  weights = values(parts.joint.weights_spec, 0)
  result = training.run(task_of(training, weights, [-1, -1]), weights)
  peers = training.training.arguments['anchors']
  assert peers.present.numpy().tolist() == [False, False]
  np.testing.assert_array_equal(result.metrics['helpers'], [0, 1])
  zeros = tf.zeros([2, 1, _CLASSES])
  assert not losses.mean_divergence(
    zeros, tf.ones([1, _CLASSES]), peers.present
  )


def test_a_helper_whose_model_is_lost_is_an_error(parts, build, tmp_path):
  training = build()
  weights = values(parts.joint.weights_spec, 0)
  leave(str(tmp_path), 1, 2, values(parts.model.weights_spec, 1))
  with pytest.raises(tf.errors.InvalidArgumentError, match='helper client'):
    training.run(task_of(training, weights, [1, 4]), weights)


def test_a_client_leaves_its_model_and_its_outputs_on_the_noise(parts, build):
  training = build()
  weights = values(parts.joint.weights_spec, 0)

  def run(given=weights, **arguments):
    task = task_of(training, given, [-1, -1], **arguments)
    return training.run(task, given)

  result = run()
  assert same(result.client_state, parts.total(weights))
  assert row_of(result).shape == (2 * _CLASSES,)
  rows = row_of(result).reshape(2, _CLASSES)
  np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-6)
  # The noise is the same in every round, and another with another seed.
  assert same(row_of(run(round_num=6)), row_of(result))
  assert not same(row_of(run(seed=8)), row_of(result))
  other = values(parts.joint.weights_spec, 1)
  assert not same(row_of(run(other)), row_of(result))


def test_outputs_are_those_of_the_model_on_normal_noise():
  """Of a linear map to two classes the noise itself can be told again."""
  parts = decomposed.Decomposition(federations.model(_FEATURES, 2))
  training = helper_training.build(
    parts,
    Recording(),
    data_spec=_SPEC,
    client_state_dir='/nowhere',
    num_clients=6,
    num_helpers=2,
    helper_interval=1,
    noise_examples=500,
  )
  noise = []
  for feature in range(_FEATURES):
    kernel = np.zeros([_FEATURES, 2], np.float32)
    kernel[feature, 0] = 1
    theta = functional.ModelWeights([kernel, np.zeros(2, np.float32)], [])
    weights = tf.nest.map_structure(tf.constant, parts.shares(theta))
    row = row_of(training.run(task_of(training, weights, [-1, -1]), weights))
    noise.append(scipy.special.logit(row.reshape(500, 2)[:, 0]))
  noise = np.stack(noise)
  assert abs(noise.mean()) < 0.1 and abs(noise.std() - 1) < 0.1
  np.testing.assert_allclose(np.corrcoef(noise), np.eye(_FEATURES), atol=0.15)


def test_noise_must_be_something(build):
  with pytest.raises(ValueError, match='noise_examples .*0'):
    build(noise_examples=0)
