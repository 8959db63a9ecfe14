"""Means within groups against Eq. 7, and groupings that cannot be."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators
from tff_ssl.templates import client_data, groups

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
    actual = groups.around(
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
  actual = groups.around(
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
