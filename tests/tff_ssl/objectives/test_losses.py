"""Loss maths against numpy, scipy and scikit-learn."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics
import tensorflow as tf

from tff_ssl.objectives import consistency, losses, selection


def _logits(num=6, classes=4, seed=0):
  rng = np.random.default_rng(seed)
  return rng.normal(scale=2, size=(num, classes)).astype(np.float32)


@pytest.mark.parametrize(
  'outputs, message',
  [
    (np.zeros([4, 1]), r'shape \[4, 1\].*two outputs'),
    (np.zeros([4, 5, 3]), r'shape \[4, 5, 3\]'),
    ([_logits(4), _logits(4)], 'a list of outputs'),
    ({'a': _logits(4)}, 'a dict of outputs'),
  ],
)
def test_outputs_of_no_classifier(outputs, message):
  labels = tf.zeros([4], tf.int32)
  for call in (
    lambda: losses.supervised(labels, outputs),
    lambda: losses.masked_cross_entropy(labels, outputs, tf.ones(4)),
    lambda: selection.pseudo_labels(outputs, 0.9),
  ):
    with pytest.raises(ValueError, match=message):
      call()


def test_cross_entropy_equals_scipy_and_scikit_learn():
  logits = _logits()
  labels = np.array([0, 3, 1, 2, 2, 0], np.int32)
  mask = np.array([1, 0, 1, 1, 0, 1], np.float32)
  expected = -scipy.special.log_softmax(logits, axis=1)[np.arange(6), labels]
  actual = losses.masked_cross_entropy(labels, logits, mask)
  assert actual.dtype == tf.float32
  np.testing.assert_allclose(actual, expected * mask, rtol=1e-5)
  actual = losses.masked_cross_entropy(labels, logits, tf.ones(6))
  expected = sklearn.metrics.log_loss(
    labels, scipy.special.softmax(logits.astype(float), 1), labels=range(4)
  )
  assert float(tf.reduce_mean(actual)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize('outside', [-1, 4, 1000])
def test_labels_under_the_mask_may_be_out_of_range(outside):
  logits = tf.constant(_logits(num=2))
  labels = np.array([1, outside], np.int32)
  with tf.GradientTape() as tape:
    tape.watch(logits)
    loss = losses.masked_cross_entropy(labels, logits, tf.constant([1.0, 0.0]))
  gradient = tape.gradient(loss, logits).numpy()
  assert loss[1] == 0 and np.isfinite(loss[0])
  assert np.isfinite(gradient).all()
  np.testing.assert_array_equal(gradient[1], 0)
  probabilities = scipy.special.softmax(logits[0])
  np.testing.assert_allclose(
    gradient[0], probabilities - np.eye(4)[1], atol=1e-6
  )


def test_half_precision_logits_are_summed_in_float32():
  logits = _logits()
  half = losses.masked_cross_entropy(
    np.zeros(6, np.int32), tf.cast(logits, tf.bfloat16), tf.ones(6)
  )
  assert half.dtype == tf.float32
  exact = -scipy.special.log_softmax(logits, axis=1)[:, 0]
  # bfloat16 has 8 bits of mantissa.
  np.testing.assert_allclose(half, exact, atol=0.05)
  labels, mask = selection.pseudo_labels(tf.cast(logits, tf.bfloat16), 0.5)
  np.testing.assert_array_equal(labels, logits.argmax(1))
  assert mask.dtype == tf.float32


@pytest.mark.parametrize('threshold', [0.0, 0.5, 0.7, 0.95, 1.01])
def test_pseudo_labels_equal_scipy(threshold):
  logits = _logits(num=200, seed=2)
  probabilities = scipy.special.softmax(logits.astype(float), axis=1)
  labels, mask = selection.pseudo_labels(logits, threshold)
  assert labels.dtype == tf.int32
  np.testing.assert_array_equal(labels, probabilities.argmax(1))
  np.testing.assert_array_equal(mask, probabilities.max(1) >= threshold)
  share = float(tf.reduce_mean(mask))
  assert share == {0.0: 1, 1.01: 0}.get(threshold, share)


def test_a_threshold_is_met_with_equality_and_one_by_certainty():
  # Two equal logits: probabilities of exactly one half.
  _, mask = selection.pseudo_labels(tf.zeros([1, 2]), 0.5)
  assert mask.numpy().tolist() == [1.0]
  logits = tf.constant([[1000.0, 0.0]])
  assert selection.pseudo_labels(logits, 1.0)[1].numpy().tolist() == [1.0]
  assert selection.pseudo_labels(logits, 1.0001)[1].numpy().tolist() == [0.0]


def test_no_gradient_flows_through_pseudo_labels():
  logits = tf.constant(_logits())
  with tf.GradientTape() as tape:
    tape.watch(logits)
    _, mask = selection.pseudo_labels(logits, 0.5)
    total = tf.reduce_sum(mask)
  assert tape.gradient(total, logits) is None


def test_sharpened_divergence_is_that_of_numpy():
  rng = np.random.default_rng(0)
  teacher = rng.normal(size=(20, 4), scale=3).astype(np.float32)
  student = rng.normal(size=(20, 4)).astype(np.float32)
  actual = consistency.sharpened_divergence(
    tf.constant(teacher), tf.constant(student), 0.8, 0.4
  )
  plain, sharp, other = (
    scipy.special.softmax(z.astype(np.float64), axis=1)
    for z in (teacher, teacher / 0.4, student)
  )
  counts = plain.max(axis=1) >= 0.8
  assert 0 < counts.sum() < 20
  expected = counts * scipy.stats.entropy(sharp, other, axis=1)
  np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_no_gradient_flows_through_the_sharpened_teacher():
  logits = tf.constant([[3.0, 0.0], [0.0, 4.0]])
  with tf.GradientTape() as tape:
    tape.watch(logits)
    loss = tf.reduce_sum(
      consistency.sharpened_divergence(logits, tf.zeros([2, 2]), 0.5, 0.4)
    )
  assert tape.gradient(loss, logits) is None


def test_a_majority_votes_and_the_lowest_class_wins_a_tie():
  def logits(*classes):
    return tf.one_hot(classes, 4)

  own = logits(3, 3, 2, 0, 1)
  others = tf.stack([logits(1, 1, 1, 2, 1), logits(1, 3, 0, 2, 2)])
  for present, labels in (
    # 3 1 1, 3 1 3, 2 1 0 (a tie), 0 2 2, 1 1 2.
    ([True, True], [1, 3, 0, 2, 1]),
    # Own and first: ties but for the last.
    ([True, False], [1, 1, 1, 0, 1]),
    ([False, False], [3, 3, 2, 0, 1]),
  ):
    voted = losses.majority_vote(own, others, tf.constant(present))
    assert voted.dtype == tf.int32
    np.testing.assert_array_equal(voted, labels)


def test_the_mean_divergence_counts_those_present():
  rng = np.random.default_rng(4)
  teachers = rng.normal(size=(3, 5, 4)).astype(np.float32)
  student = rng.normal(size=(5, 4)).astype(np.float32)
  divergences = [
    scipy.stats.entropy(
      scipy.special.softmax(teacher.astype(np.float64), axis=1),
      scipy.special.softmax(student.astype(np.float64), axis=1),
      axis=1,
    )
    for teacher in teachers
  ]
  for present in ([True, True, True], [True, False, True]):
    np.testing.assert_allclose(
      losses.mean_divergence(teachers, student, tf.constant(present)),
      np.mean([d for d, p in zip(divergences, present, strict=True) if p], 0),
      rtol=1e-5,
    )
  nobody = losses.mean_divergence(teachers, student, tf.constant([False] * 3))
  np.testing.assert_array_equal(nobody, np.zeros(5))


def test_divergence_by_hand_and_its_gradients():
  teacher = tf.math.log([[0.5, 0.5], [0.9, 0.1]])
  student = tf.math.log([[0.25, 0.75], [0.9, 0.1]])
  with tf.GradientTape() as tape:
    tape.watch([teacher, student])
    values = losses.divergence(teacher, student)
  # 0.5 log(0.5 / 0.25) + 0.5 log(0.5 / 0.75).
  np.testing.assert_allclose(values, [0.143841, 0], atol=1e-6)
  of_teacher, of_student = tape.gradient(values, [teacher, student])
  # Softmax minus target.
  np.testing.assert_allclose(of_student, [[-0.25, 0.25], [0, 0]], atol=1e-6)
  # p (log p - log q - KL), with log p - log q = log 2 and log (2 / 3).
  np.testing.assert_allclose(
    of_teacher, [[0.274653, -0.274653], [0, 0]], atol=1e-6
  )
