"""Weights that are a sum: what the parts are, and that nothing is lost."""

import federations
import numpy as np
import pytest
import tensorflow as tf
from comparing import assert_same

from tff_ssl.models import decomposed

_FEATURES, _CLASSES = 4, 3


@pytest.fixture(scope='module', params=['none', 'batch'])
def parts(request):
  return decomposed.Decomposition(
    federations.model(_FEATURES, _CLASSES, request.param, hidden=(5,))
  )


@pytest.fixture
def weights(parts):
  """Joint weights with two unlike parts."""
  rng = np.random.default_rng(3)
  return tf.nest.map_structure(
    lambda spec: tf.constant(rng.uniform(0.1, 1, spec.shape), spec.dtype),
    parts.joint.weights_spec,
  )


def test_psi_is_a_share_of_sigma_at_first(parts):
  """0.2 in the authors' code, on top of an initialisation that is sigma's."""
  start = parts.model.initial_weights(5)
  joint = parts.joint.initial_weights(5)
  sigma, psi = parts.separate(joint)
  for value, a, b in zip(start.trainable, sigma, psi, strict=True):
    np.testing.assert_array_equal(a, value)
    np.testing.assert_allclose(b, 0.2 * value, rtol=1e-6)
    assert b.dtype == value.dtype
  assert_same(joint.non_trainable, start.non_trainable)


def test_parts_come_apart_and_together_again(parts, weights):
  size = len(parts.model.weights_spec.trainable)
  sigma, psi = weights.trainable[:size], weights.trainable[size:]
  for name, own, other in (('sigma', sigma, psi), ('psi', psi, sigma)):
    taken = parts.take(weights, name)
    assert_same(taken.trainable, own)
    assert_same(taken.non_trainable, [*other, *weights.non_trainable])
    assert_same(parts.put(taken, name), weights)
    specs = parts.part(name).weights_spec
    shapes, expected = (
      [leaf.shape for leaf in tf.nest.flatten(each)] for each in (taken, specs)
    )
    assert shapes == expected
  total = parts.total(weights)
  for a, b, c in zip(sigma, psi, total.trainable, strict=True):
    np.testing.assert_array_equal(c, a.numpy() + b.numpy())


@pytest.mark.parametrize('training', [True, False])
def test_all_forms_give_what_the_model_gives_at_the_sum(
  parts, weights, training
):
  x = np.random.default_rng(0).normal(size=(6, _FEATURES)).astype(np.float32)

  def outputs_and_state(model, weights, kept):
    outputs, state = model.predict(
      *weights, tf.constant(x), training=training, seed=tf.constant([1, 2])
    )
    return outputs, tf.nest.flatten(state)[kept:]

  expected = outputs_and_state(parts.model, parts.total(weights), 0)
  size = len(parts.model.weights_spec.trainable)
  assert_same(outputs_and_state(parts.joint, weights, 0), expected)
  for name in ('sigma', 'psi'):
    taken = parts.take(weights, name)
    actual = outputs_and_state(parts.part(name), taken, size)
    assert_same(actual, expected)
  alone = parts.as_psi(parts.total(weights))
  assert_same(outputs_and_state(parts.part('psi'), alone, size), expected)


@pytest.mark.parametrize('factor', [0.0, 0.2, 0.5, 1.0])
def test_shares_of_a_model_add_up_to_it_bit_for_bit(parts, factor):
  own = decomposed.Decomposition(parts.model, factor)
  rng = np.random.default_rng(1)
  given = tf.nest.map_structure(
    lambda spec: tf.constant(rng.normal(size=spec.shape), spec.dtype),
    parts.model.weights_spec,
  )
  shares = own.shares(given)
  assert_same(own.total(shares), given)
  for sigma, psi in zip(*own.separate(shares), strict=True):
    np.testing.assert_allclose(psi, factor * sigma, rtol=1e-4, atol=1e-7)


def test_a_change_of_psi_alone(parts, weights):
  change = tf.nest.map_structure(
    lambda value: tf.ones_like(value), parts.without_sigma(weights)
  )
  new = parts.add_to_psi(weights, change)
  sigma, psi = parts.separate(new)
  old_sigma, old_psi = parts.separate(weights)
  assert_same(sigma, old_sigma)
  assert_same(psi, [value + 1 for value in old_psi])
  assert_same(new.non_trainable, [v + 1 for v in weights.non_trainable])


def test_the_factor_is_a_share(parts):
  with pytest.raises(ValueError, match='psi_factor.* 1.5'):
    decomposed.Decomposition(parts.model, 1.5)
