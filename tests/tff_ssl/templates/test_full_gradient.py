"""The gradient on all data against numpy, whatever the minibatches."""

import collections

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, assert_same, largest_differences

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.templates import local_training, prediction

ModelWeights = tff.learning.models.ModelWeights

_SEED = tf.constant([3, 4])
_FEATURES, _CLASSES, _SIZE = 4, 3, 10


class _NoisyViews(views.PlainViews):
  """Its weak view depends on the seed."""

  def weak(self, examples, seed):
    return examples + tf.random.stateless_normal(tf.shape(examples), seed)


def _weights():
  rng = np.random.default_rng(0)
  return ModelWeights(
    [
      rng.normal(size=[_FEATURES, _CLASSES]).astype(np.float32),
      rng.normal(size=[_CLASSES]).astype(np.float32),
    ],
    [],
  )


def _examples(size=_SIZE):
  rng = np.random.default_rng(1)
  return collections.OrderedDict(
    x=tf.constant(rng.normal(size=[size, _FEATURES]), tf.float32),
    y=tf.constant(rng.integers(_CLASSES, size=size), tf.int32),
  )


_SUPERVISED = objectives.Supervised(views.PlainViews())


def _gradient(batch_size, objective=_SUPERVISED, size=_SIZE, seed=_SEED):
  # Inside TFF all is in a graph.
  gradient = tf.function(autograph=False)(
    lambda: local_training.full_gradient(
      softmax_regression.model(_FEATURES, _CLASSES),
      objective,
      _weights(),
      _examples(size),
      batch_size=batch_size,
      seed=seed,
    )
  )()
  return [part.numpy() for part in gradient]


def _gradient_by_numpy():
  x, y = (value.numpy() for value in _examples().values())
  return softmax_regression.gradient(_weights().trainable, x, y)


@pytest.mark.parametrize('batch_size', [1, 3, 5, 10, 64])
def test_equals_numpys_gradient_for_any_batch_size(batch_size):
  assert_close(_gradient(batch_size), _gradient_by_numpy(), atol=1e-6)


def test_without_examples_it_is_zero():
  for part in _gradient(4, size=0):
    np.testing.assert_array_equal(part, np.zeros_like(part))


def test_views_derive_from_the_seed():
  noisy = objectives.Supervised(_NoisyViews())
  first, again = _gradient(4, noisy), _gradient(4, noisy)
  other = _gradient(4, noisy, seed=tf.constant([3, 5]))
  assert_same(first, again)
  assert min(largest_differences(first, other)) > 1e-3


def test_crl_counts_examples_below_the_threshold_as_zeros():
  """Eq. 4: a sum over the confident ones, divided by the number of all."""
  threshold = 0.8
  weights, x = _weights().trainable, _examples()['x'].numpy()
  probabilities = softmax_regression.probabilities(weights, x)
  passed = probabilities.max(1) >= threshold
  assert 0 < passed.sum() < len(x)
  expected = softmax_regression.gradient(
    weights, x, probabilities.argmax(1), passed
  )
  # Which does not read labels.
  actual = _gradient(
    4, objectives.ConsistencyRegularization(views.PlainViews(), threshold)
  )
  assert_close(actual, expected, atol=1e-6)


def test_a_proximal_term_vanishes_at_the_start():
  with_term = _gradient(4, objectives.Proximal(_SUPERVISED, strength=10.0))
  assert_close(with_term, _gradient_by_numpy(), atol=1e-6)


def test_minibatches_carry_the_step_that_comes_next():
  """An objective may read `step`: here the loss is step + 1 times a score."""

  class Ramp:
    metric_names = ()

    def __call__(self, predict, batch, anchors, seed):
      ramp = tf.cast(batch['step'] + 1, tf.float32)
      return ramp * tf.reduce_mean(predict(batch['x'])), {}

  actual = _gradient(4, Ramp())
  np.testing.assert_allclose(actual[1], np.full(_CLASSES, 1 / _CLASSES), 1e-6)


def test_batch_normalisation_in_train_mode():
  """With one minibatch, the gradient of the loss at the batch's statistics."""
  model = federations.model(_FEATURES, _CLASSES, 'batch', hidden=(5,))
  weights = tf.nest.map_structure(tf.constant, model.initial_weights(1))
  actual = local_training.full_gradient(
    model, _SUPERVISED, weights, _examples(), batch_size=_SIZE, seed=_SEED
  )
  with tf.GradientTape() as tape:
    tape.watch(weights.trainable)
    predict = prediction.Predictor(model, *weights)
    loss, _ = _SUPERVISED(predict, _examples(), weights, _SEED)
  expected = tape.gradient(loss, weights.trainable)
  assert_close(actual, expected, atol=1e-5)
