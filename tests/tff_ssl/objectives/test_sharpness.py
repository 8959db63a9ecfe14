"""Sharpness-aware consistency against numpy, on softmax regression."""

import collections

import numpy as np
import pytest
import scipy.special
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import objectives
from tff_ssl.augmentation import views
from tff_ssl.objectives import sharpness
from tff_ssl.templates import local_training

_RADIUS = 0.5
_LABELS = np.array([0, 2, 1, 1, 0], np.int32)
_CONFIDENCE = np.array([0.99, 0.5, 0.97, 0.2, 0.96], np.float32)
_SURE = _CONFIDENCE >= 0.95


def _start():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(5, 4)).astype(np.float32)
  weights = [rng.normal(size=(4, 3)), rng.normal(size=3)]
  return x, [np.float32(weight) for weight in weights]


def _found(x, weights, confidence=_CONFIDENCE, **options):
  batch = collections.OrderedDict(x=tf.constant(x), y=tf.constant(_LABELS))
  batch['confidence'] = tf.constant(confidence)
  return local_training.objective_gradient(
    softmax_regression.model(4, 3),
    objectives.SharpnessAwareConsistency(
      views.PlainViews(), sharpness_radius=_RADIUS, **options
    ),
    tff.learning.models.ModelWeights([*map(tf.constant, weights)], []),
    batch,
    None,
    tf.constant([0, 1]),
  )


def _by_hand(x, weights, labels=_LABELS, sure=_SURE):
  """The perturbation, and the gradient of the loss, in float64."""
  weights = [np.float64(weight) for weight in weights]
  kernel, bias = softmax_regression.gradient(weights, x, labels, sure)
  scale = np.abs(weights[0]) + 0.01
  norm = np.sqrt(np.sum((scale * kernel) ** 2) + np.sum(bias**2))
  change = [_RADIUS * scale**2 * kernel / norm, _RADIUS * bias / norm]
  near = [w + c for w, c in zip(weights, change, strict=True)]
  here, there = (
    softmax_regression.probabilities(each, x) for each in (weights, near)
  )
  errors = (there - here) * sure[:, None] / len(x)
  own = softmax_regression.gradient(weights, x, labels)
  gradient = [own[0] + x.T @ errors, own[1] + errors.sum(0)]
  divergence = scipy.special.rel_entr(here, there).sum(1)[sure].sum()
  return change, gradient, divergence


def test_gradient_and_metrics_equal_numpy():
  x, weights = _start()
  _, gradient, divergence = _by_hand(x, weights)
  found = _found(x, weights)
  for actual, expected in zip(found.gradient, gradient, strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
  total, count = found.metrics['sharpness']
  assert total.numpy() == pytest.approx(divergence, rel=1e-4)
  assert count.numpy() == _SURE.sum()
  # The divergence counts: without it, the gradient is another one.
  plain = softmax_regression.gradient(weights, x, _LABELS)
  assert np.abs(found.gradient[0] - plain[0]).max() > 1e-3
  # Both passes train.
  assert found.passes.numpy().tolist() == [10, 10]


@pytest.mark.parametrize(
  'options', [{'sharpness_radius': 0.0}, {'confidence': 0 * _CONFIDENCE}]
)
def test_it_is_cross_entropy_alone(options):
  """Without a radius, and where no example is sure."""
  x, weights = _start()
  confidence = options.pop('confidence', _CONFIDENCE)
  objective = objectives.SharpnessAwareConsistency(
    views.PlainViews(), **options
  )
  batch = collections.OrderedDict(
    x=tf.constant(x), y=tf.constant(_LABELS), confidence=confidence
  )
  found = local_training.objective_gradient(
    softmax_regression.model(4, 3),
    objective,
    tff.learning.models.ModelWeights([*map(tf.constant, weights)], []),
    batch,
    None,
    tf.constant([0, 1]),
  )
  expected = softmax_regression.gradient(weights, x, _LABELS)
  for actual, by_hand in zip(found.gradient, expected, strict=True):
    np.testing.assert_allclose(actual, by_hand, rtol=1e-5, atol=1e-6)
  assert [float(part) for part in found.metrics['sharpness']] == [0, 0]


def test_where_nobody_is_sure_no_example_goes_to_the_neighbour():
  x, weights = _start()
  assert _found(x, weights).passes.numpy().tolist() == [10, 10]
  unsure = _found(x, weights, 0 * _CONFIDENCE)
  assert unsure.passes.numpy().tolist() == [5, 5]


class _Views(views.PlainViews):
  """The strong view is another one than the weak."""

  def strong(self, examples, seed):
    return self.plain(examples)[:, ::-1]


def test_beside_crl_it_equals_numpy():
  """Labels, and who is sure, are the received model's; n is all of them."""
  rng = np.random.default_rng(3)
  x = rng.normal(size=(40, 4)).astype(np.float32)
  own, received = (
    [np.float32(rng.normal(size=(4, 3))), np.zeros(3, np.float32)]
    for _ in range(2)
  )
  found = softmax_regression.probabilities(received, x)
  labels, confidence = found.argmax(1), found.max(1)
  counts, sure = confidence >= 0.6, confidence >= 0.8
  assert 0 < sure.sum() < counts.sum() < len(x)
  strong = x[:, ::-1]
  change, _, divergence = _by_hand(strong, own, labels, sure)
  near = [w + c for w, c in zip(own, change, strict=True)]
  here, there = (
    softmax_regression.probabilities(each, strong) for each in (own, near)
  )
  errors = (there - here) * sure[:, None] / len(x)
  crl = softmax_regression.gradient(own, strong, labels, counts)
  expected = [crl[0] + strong.T @ errors, crl[1] + errors.sum(0)]
  results = {}
  for radius in (0.0, _RADIUS):
    results[radius] = local_training.objective_gradient(
      softmax_regression.model(4, 3),
      objectives.ConsistencyRegularization(
        _Views(),
        0.6,
        teacher='received',
        sharpness_radius=radius,
        sharpness_threshold=0.8,
      ),
      tff.learning.models.ModelWeights([*map(tf.constant, own)], []),
      collections.OrderedDict(x=tf.constant(x), y=tf.fill([40], -1)),
      tff.learning.models.ModelWeights([*map(tf.constant, received)], []),
      tf.constant([0, 1]),
    )
  for actual, by_hand in zip(results[_RADIUS].gradient, expected, strict=True):
    np.testing.assert_allclose(actual, by_hand, rtol=1e-4, atol=1e-6)
  for actual, by_hand in zip(results[0.0].gradient, crl, strict=True):
    np.testing.assert_allclose(actual, by_hand, rtol=1e-4, atol=1e-6)
  total, count = results[_RADIUS].metrics['sharpness']
  assert total.numpy() == pytest.approx(divergence, rel=1e-4)
  assert count == sure.sum() and 'sharpness' not in results[0.0].metrics
  # All for their labels, then twice those with one.
  forward = 40 + 2 * counts.sum()
  assert results[_RADIUS].passes.numpy().tolist() == [forward, forward - 40]


def test_the_perturbation_is_that_of_adaptive_sam():
  x, weights = _start()
  change, _, _ = _by_hand(x, weights)
  gradient = softmax_regression.gradient(weights, x, _LABELS, _SURE)
  found = sharpness.adaptive_perturbation(
    [*map(tf.constant, weights)],
    [tf.constant(np.float32(part)) for part in gradient],
    _RADIUS,
  )
  for actual, expected in zip(found, change, strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-7)
  still = sharpness.adaptive_perturbation([tf.ones([2, 2])], [None], _RADIUS)
  np.testing.assert_array_equal(still[0], np.zeros([2, 2]))
  # Of an embedding, the gradient has the rows of the words that occur.
  row = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([3, 2]))
  (moved,) = sharpness.adaptive_perturbation([tf.ones([3, 2])], [row], _RADIUS)
  assert (moved.numpy() != 0).any(axis=1).tolist() == [False, True, False]
