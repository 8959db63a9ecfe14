"""Means within groups against Eq. 7, and groupings that cannot be."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators, testing
from tff_ssl.algorithms import PROCESSES
from tff_ssl.templates import client_data, finalizers, groups

ModelWeights = tff.learning.models.ModelWeights
# Two groups, a trainable weight and a moving statistic.
_MODELS = tff.types.to_type(
  ModelWeights([(np.float32, [2, 3])], [(np.float32, [2, 3])])
)
_AGGREGATE = tff.types.to_type(
  collections.OrderedDict(mean=_MODELS, weight=(np.float32, [2]))
)
SPEC = client_data.image_element_spec((4,), dtype=tf.float32)


def every_set_of_survivors():
  """C = 6 clients in S = 3 groups: start, trained models, aggregate."""
  rng = np.random.default_rng(7)
  start = rng.normal(size=(3, 2, 5))
  trained = rng.normal(size=(6, 2, 5))
  group = np.arange(6) % 3
  for bits in range(64):
    alive = np.array([bits >> k & 1 for k in range(6)], bool)
    members = [list(trained[alive & (group == g)]) for g in range(3)]
    deltas = [
      np.mean(models, axis=0) - start[g] if models else np.zeros((2, 5))
      for g, models in enumerate(members)
    ]
    aggregate = {
      'mean': tf.constant(np.stack(deltas), tf.float32),
      'weight': tf.constant([len(models) for models in members], tf.float32),
    }
    yield start, members, aggregate


@pytest.mark.parametrize('server_weight', [1.0, 3.0])
@pytest.mark.parametrize('replicas', [1, 3])
def test_average_with_the_server_is_eq_7(server_weight, replicas):
  servers = np.random.default_rng(8).normal(size=(replicas, 2, 5))
  for start, members, aggregate in every_set_of_survivors():
    actual = groups.average(
      tf.constant(start, tf.float32),
      aggregate,
      tf.constant(servers, tf.float32),
      server_weight,
    )
    expected = [
      (server_weight * servers[g % replicas] + sum(models))
      / (server_weight + len(models))
      for g, models in enumerate(members)
    ]
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize('replicas', [1, 3])
def test_around_a_server_model_is_eq_7_with_another_mean(replicas):
  servers = np.random.default_rng(8).normal(size=(replicas, 2, 5))
  for start, members, aggregate in every_set_of_survivors():
    means = start + np.asarray(aggregate['mean'])
    actual = groups.recentre(
      tf.constant(means, tf.float32),
      tf.constant(servers, tf.float32),
      aggregate['weight'],
      2.0,
    ).numpy()
    np.testing.assert_allclose(
      actual.mean(axis=0), servers.mean(axis=0), atol=1e-6
    )
    sizes = {len(models) for models in members}
    if replicas == 1 and len(sizes) == 1:
      # Groups of one size n differ by n / (n + 2) of what they did.
      (size,) = sizes
      np.testing.assert_allclose(
        actual[0] - actual[1],
        size / (size + 2) * (means[0] - means[1]),
        atol=1e-6,
      )
  # One group around a server model is that model.
  own = tf.constant([[1.0, 2.0]])
  actual = groups.recentre(
    tf.constant([[5.0, 7.0]]), own, tf.constant([3.0]), 1.0
  )
  np.testing.assert_array_equal(actual, own)


def test_average_without_a_server_keeps_groups_without_clients():
  for start, members, aggregate in every_set_of_survivors():
    actual = groups.average(tf.constant(start, tf.float32), aggregate)
    expected = [
      np.mean(models, axis=0) if models else start[g]
      for g, models in enumerate(members)
    ]
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
  'assignment, start_model, in_context, error, message',
  [
    ('sampler', 'slot', True, TypeError, 'num_slots='),
    ('in_process', 'slot', True, ValueError, "'in_process'"),
    ('sampler', 'own', True, ValueError, "start_model .* 'own'"),
    ('drawn', 'group', True, ValueError, "group_assignment .* 'drawn'"),
    ('sampler', 'group', False, TypeError, 'context that holds the group'),
  ],
)
def test_groupings_that_cannot_be(
  assignment, start_model, in_context, error, message
):
  with pytest.raises(error, match=message):
    groups.Grouping(2, assignment, start_model).check_data(
      client_data.ClientDataSpec(SPEC, in_context=in_context)
    )


def test_groups_that_need_no_place_in_the_data():
  data_spec = client_data.ClientDataSpec(SPEC)
  groups.Grouping(2, 'in_process').check_data(data_spec)
  groups.Grouping(1, 'sampler').check_data(data_spec)


def test_a_least_size_of_groups_must_reach_the_factory():
  types = (
    tff.to_type(collections.OrderedDict(value=np.float32, group=np.int32)),
    tff.to_type(np.float32),
  )
  own = aggregators.GroupMeanFactory(2, min_group_size=5)
  for least in (1, 5):
    assert groups.create_aggregator(own, 2, *types, least)
  for factory, least in ((own, 6), (aggregators.GroupMeanFactory(2), 2)):
    with pytest.raises(ValueError, match=f'min_group_size={least} does not re'):
      groups.create_aggregator(factory, 2, *types, least)


@pytest.fixture(scope='module')
def process(tff_context):
  added = finalizers.build_no_server_training(
    lambda models, aggregate: tf.nest.map_structure(
      tf.add, models, aggregate['mean']
    ),
    weights_type=_MODELS,
    aggregate_type=_AGGREGATE,
  )
  return groups.with_momentum(added, 0.5, _MODELS)


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


def test_the_aggregator_that_does_not_fit_is_named():
  update_type = tff.types.to_type(
    collections.OrderedDict(value=[np.int32], group=np.int32)
  )
  weight_type = tff.types.to_type(np.float32)
  factory = tff.aggregators.MeanFactory()
  with pytest.raises(TypeError, match='but is MeanFactory: .* V holds int32'):
    groups.create_aggregator(factory, 2, update_type, weight_type)


def test_it_does_not_fit_a_server_that_is_averaged():
  problem = testing.TinyProblem(PROCESSES['grouping'])
  with pytest.raises(ValueError, match="global_momentum=0.5 .*'beside'"):
    problem.build(global_momentum=0.5)
