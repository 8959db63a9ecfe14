"""Rules by which pseudo-labels count, against numpy and papers' formulas."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from tff_ssl.objectives import consistency
from tff_ssl.objectives.maths import losses, selection

_LOGITS = np.random.default_rng(0).normal(0, 2, size=(64, 5))


def _by_hand():
  probabilities = scipy.special.softmax(_LOGITS, axis=1)
  return probabilities, probabilities.max(axis=1), probabilities.argmax(axis=1)


def _select(logits, rule):
  labels, weights = selection.pseudo_labels(
    tf.constant(logits, tf.float32), 0.6, rule
  )
  return labels.numpy(), weights.numpy()


def test_every_rule_is_a_choice():
  assert consistency.PSEUDO_LABEL_RULE.choices == selection.RULES


def test_labels_are_the_same_by_every_rule():
  _, _, expected = _by_hand()
  for rule in selection.RULES:
    labels, weights = _select(_LOGITS, rule)
    np.testing.assert_array_equal(labels, expected)
    assert (weights.dtype, labels.dtype) == (np.float32, np.int32)


def test_fixed_is_the_threshold():
  _, confidence, _ = _by_hand()
  _, weights = _select(_LOGITS, 'fixed')
  np.testing.assert_array_equal(weights, confidence >= 0.6)
  _, alike = selection.from_threshold(0.6)(tf.constant(_LOGITS, tf.float32))
  np.testing.assert_array_equal(weights, alike)


def test_self_adaptive_is_that_of_freematch():
  """tau = mean confidence; tau(c) = p(c) / max p * tau (Eqs. 5 to 8)."""
  probabilities, confidence, labels = _by_hand()
  of_class = probabilities.mean(axis=0)
  thresholds = of_class / of_class.max() * confidence.mean()
  expected = confidence >= thresholds[labels]
  _, weights = _select(_LOGITS, 'self_adaptive')
  np.testing.assert_array_equal(weights, expected)
  assert 0 < sum(expected) < len(expected)
  # A rare class needs less.
  assert thresholds.min() < thresholds.max() == confidence.mean()


def test_gaussian_is_that_of_softmatch():
  """A normal density around the mean, cut at 1 above it (Eqs. 5 to 7)."""
  _, confidence, _ = _by_hand()
  density = scipy.stats.norm(confidence.mean(), confidence.std(ddof=1)).pdf
  expected = density(np.minimum(confidence, confidence.mean())) / density(
    confidence.mean()
  )
  _, weights = _select(_LOGITS, 'gaussian')
  np.testing.assert_allclose(weights, expected, rtol=1e-4)
  assert weights.max() == 1 and weights.min() > 0


@pytest.mark.parametrize('rule', ['self_adaptive', 'gaussian'])
@pytest.mark.parametrize('size', [1, 3, 7, 10, 64])
def test_examples_that_are_alike_all_count(rule, size):
  for row in _LOGITS[:20]:
    _, weights = _select(np.tile(row, (size, 1)), rule)
    np.testing.assert_array_equal(weights, 1)


@pytest.mark.parametrize('rule', ['self_adaptive', 'gaussian'])
def test_below_the_floor_nothing_counts(rule):
  _, confidence, _ = _by_hand()
  logits = tf.constant(_LOGITS, tf.float32)
  _, free = selection.pseudo_labels(logits, 2.0, rule)
  _, weights = selection.pseudo_labels(logits, 2.0, rule, min_confidence=0.7)
  np.testing.assert_array_equal(weights, free.numpy() * (confidence >= 0.7))
  assert np.sum(free.numpy() > 0) > np.sum(weights.numpy() > 0) > 0


@pytest.mark.parametrize('rule', ['self_adaptive', 'gaussian'])
def test_a_model_that_knows_nothing_labels_nothing_above_the_floor(rule):
  logits = tf.constant(0.01 * _LOGITS, tf.float32)
  _, free = selection.pseudo_labels(logits, 2.0, rule)
  _, weights = selection.pseudo_labels(logits, 2.0, rule, min_confidence=0.5)
  assert np.sum(free.numpy() > 0) > 0
  np.testing.assert_array_equal(weights, 0)


@pytest.mark.parametrize('rule', selection.RULES)
def test_no_gradient_flows(rule):
  logits = tf.constant(_LOGITS, tf.float32)
  with tf.GradientTape() as tape:
    tape.watch(logits)
    labels, weights = selection.pseudo_labels(logits, 0.6, rule)
    loss = tf.reduce_sum(
      losses.masked_cross_entropy(labels, tf.stop_gradient(logits), weights)
    )
  assert tape.gradient(loss, logits) is None


def test_an_unknown_rule_is_refused():
  with pytest.raises(ValueError, match="rule='variance'"):
    _select(_LOGITS, 'variance')
