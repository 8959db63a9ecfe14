"""Means within groups against Eq. 7, and what a slot must be told."""

import numpy as np
import pytest
import tensorflow as tf

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


def test_average_without_a_server_keeps_groups_without_clients():
  for start, members, aggregate in every_set_of_survivors():
    actual = groups.average(tf.constant(start, tf.float32), aggregate)
    expected = [
      np.mean(models, axis=0) if models else start[g]
      for g, models in enumerate(members)
    ]
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
  'arguments, error, message',
  [
    (('sampler', 'slot', 'reset', None), TypeError, 'in_slots=True'),
    (('in_process', 'slot', 'reset', None), ValueError, "'in_process'"),
    (('sampler', 'group', 'slot', 3), TypeError, 'in_slots=True'),
    (('sampler', 'own', 'reset', None), ValueError, "start_model .* 'own'"),
    (
      ('sampler', 'group', 'kept', None),
      ValueError,
      "client_momentum .* 'kept'",
    ),
    (('sampler', 'group', 'reset', 3), ValueError, 'num_slots=3'),
    (('sampler', 'group', 'slot', None), ValueError, 'num_slots=None'),
    (('sampler', 'group', 'slot', 0), ValueError, 'num_slots'),
  ],
)
def test_slots_that_cannot_be(arguments, error, message):
  with pytest.raises(error, match=message):
    groups.check_slots(
      *arguments, client_data.ClientDataSpec(SPEC, in_context=True)
    )


def test_slots_need_a_context():
  with pytest.raises(TypeError, match='in_context=True'):
    client_data.ClientDataSpec(SPEC, in_slots=True)
