"""Momentum of the clients' averaged change, against numpy and TFF's own."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import testing
from tff_ssl.algorithms import PROCESSES
from tff_ssl.templates.server import aggregate_momentum, finalizers

ModelWeights = tff.learning.models.ModelWeights
# Two groups, a trainable weight and a moving statistic.
_MODELS = tff.types.to_type(
  ModelWeights([(np.float32, [2, 3])], [(np.float32, [2, 3])])
)
_AGGREGATE = tff.types.to_type(
  collections.OrderedDict(mean=_MODELS, weight=(np.float32, [2]))
)


@pytest.fixture(scope='module')
def process(tff_context):
  added = finalizers.build_no_server_training(
    lambda models, aggregate: tf.nest.map_structure(
      tf.add, models, aggregate['mean']
    ),
    weights_type=_MODELS,
    aggregate_type=_AGGREGATE,
  )
  return aggregate_momentum.preceding(added, 0.5)


def _changes(rounds):
  rng = np.random.default_rng(0)
  return rng.normal(size=(rounds, 2, 3)).astype(np.float32)


def _run(process, changes):
  """Returns both weights after each round, and the last state."""
  zeros = np.zeros((2, 3), np.float32)
  state, models = process.initialize(), ModelWeights([zeros], [zeros])
  followed, statistics = [], []
  for change in changes:
    output = process.next(
      state,
      models,
      collections.OrderedDict(
        mean=ModelWeights([change], [change]), weight=np.ones(2, np.float32)
      ),
    )
    state, models = output.state, output.result
    followed.append(models.trainable[0])
    statistics.append(models.non_trainable[0])
  return followed, statistics, state


def test_the_mean_of_groups_moves_as_under_sgd_with_momentum(process):
  changes = _changes(5)
  followed, _, _ = _run(process, changes)
  optimizer = tff.learning.optimizers.build_sgdm(1.0, 0.5)
  spec = tf.TensorSpec([3], tf.float32)
  state, weights = optimizer.initialize(spec), tf.zeros([3])
  for change, models in zip(changes, followed, strict=True):
    state, weights = optimizer.next(
      state, weights, tf.constant(-change.mean(axis=0))
    )
    np.testing.assert_allclose(models.mean(axis=0), weights, atol=1e-5)


def test_groups_differ_as_without_it_and_statistics_have_none(process):
  changes = _changes(5)
  followed, statistics, _ = _run(process, changes)
  apart = np.cumsum(changes[:, 0] - changes[:, 1], axis=0)
  for models, expected in zip(followed, apart, strict=True):
    np.testing.assert_allclose(models[0] - models[1], expected, atol=1e-5)
  np.testing.assert_allclose(statistics, np.cumsum(changes, axis=0), atol=1e-5)


def test_a_change_that_is_not_finite_leaves_no_trace(process):
  first, last = _changes(2)
  bad = np.full_like(first, np.nan)
  followed, _, state = _run(process, [first, bad])
  *_, before = _run(process, [first])
  np.testing.assert_array_equal(state['velocity'][0], before['velocity'][0])
  # The finalizer keeps its models.
  np.testing.assert_array_equal(followed[1], followed[0])
  again, *_ = _run(process, [first, bad, last])
  without, *_ = _run(process, [first, last])
  np.testing.assert_array_equal(again[2], without[1])


@pytest.mark.parts
def test_clients_that_change_nothing_feel_the_last_change(tff_context):
  """Server and clients at rest, but for a velocity from a round before."""
  problem = testing.TinyProblem(PROCESSES['grouping'])
  process = problem.build(
    server_order='after', global_momentum=0.5, threshold=0.1, num_groups=1
  )
  clients = problem.clients()
  state = process.next(process.initialize(), clients).state
  velocity = state.finalizer['velocity']
  assert max(np.abs(leaf).max() for leaf in velocity) > 0
  hparams = process.get_hparams(state)
  hparams['finalizer']['learning_rate'] = np.float32(0)
  hparams['client_work']['learning_rate'] = np.float32(0)
  before = process.get_model_weights(state).trainable
  state = process.next(process.set_hparams(state, hparams), clients).state
  after = process.get_model_weights(state).trainable
  for old, new, change in zip(before, after, velocity, strict=True):
    np.testing.assert_allclose(new, old + 0.5 * change, atol=1e-6)


def test_it_does_not_fit_a_server_that_is_averaged():
  problem = testing.TinyProblem(PROCESSES['grouping'])
  with pytest.raises(ValueError, match="global_momentum=0.5 .*'beside'"):
    problem.build(global_momentum=0.5)
