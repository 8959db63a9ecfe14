"""Eqs. 3 and 6: cross-entropy with labels, against scikit-learn and numpy."""

import collections

import numpy as np
import pytest
import scipy.special
import sklearn.metrics
import tensorflow as tf

from tff_ssl import objectives
from tff_ssl.objectives import surrogate_sets

_LOGITS = np.array(
  [[2.0, 0.0, 1.0], [0.1, 0.2, 0.3], [-1.0, 3.0, 0.0], [0.0, 0.0, 5.0]],
  np.float32,
)
_SEED = tf.constant([1, 2])


class _DoublingViews:
  """A weak view that can be told from the example."""

  def weak(self, x, seed):
    del seed
    return 2 * x


def _evaluate(
  y,
  logits=_LOGITS,
  supervised_loss='cross_entropy',
  class_weights=None,
  **more,
):
  """The model is the identity: examples are half of their logits."""
  x = tf.constant(logits / 2)
  batch = collections.OrderedDict(x=x, y=tf.constant(y, tf.int32), **more)

  def predict(view, *, training, seed):
    assert training and seed.shape == (2,)
    return view

  with tf.GradientTape() as tape:
    tape.watch(x)
    objective = objectives.Supervised(
      _DoublingViews(), supervised_loss, class_weights
    )
    loss, metrics = objective(predict, batch, None, _SEED)
  # By the chain rule the gradient by the logits is half of that by x.
  gradient = tf.convert_to_tensor(tape.gradient(loss, x)).numpy() / 2
  return float(loss), gradient, metrics


def _numbers(pair):
  return [float(value) for value in pair]


def test_equals_scikit_learn():
  y = [0, 2, 1, 0]
  loss, gradient, metrics = _evaluate(y)
  probabilities = scipy.special.softmax(_LOGITS.astype(float), axis=1)
  expected = sklearn.metrics.log_loss(y, probabilities, labels=range(3))
  assert loss == pytest.approx(expected, rel=1e-6)
  np.testing.assert_allclose(
    gradient, (probabilities - np.eye(3)[y]) / 4, atol=1e-6
  )
  assert tuple(metrics) == objectives.Supervised.metric_names
  assert _numbers(metrics['accuracy']) == [3.0, 4.0]
  assert _numbers(metrics['loss']) == pytest.approx([4 * expected, 4])


def test_the_second_softmax_is_that_of_fedul_with_a_set_for_each_class():
  y = [0, 2, 1, 0]
  loss, _, metrics = _evaluate(y, supervised_loss='double_softmax')
  twice = scipy.special.softmax(
    scipy.special.softmax(_LOGITS.astype(float), axis=1), axis=1
  )
  expected = sklearn.metrics.log_loss(y, twice, labels=range(3))
  assert loss == pytest.approx(expected, rel=1e-6)
  layer = surrogate_sets.build_transition(
    np.eye(3, dtype=np.float32), np.full(3, 1 / 3, np.float32)
  )
  of_sets = layer.published_code_loss(tf.constant(_LOGITS), tf.constant(y))
  assert loss == pytest.approx(np.mean(of_sets), rel=1e-5)
  # Never 0: right beyond doubt still costs log(1 + 2 / e).
  sure, *_ = _evaluate([2], 100 * np.eye(3)[[2]].astype(np.float32))
  never, *_ = _evaluate(
    [2], 100 * np.eye(3)[[2]].astype(np.float32), 'double_softmax'
  )
  assert (sure, never) == pytest.approx((0, np.log(1 + 2 / np.e)), abs=1e-6)
  assert _numbers(metrics['accuracy']) == [3.0, 4.0]


def test_mean_runs_over_the_labelled_examples():
  loss, gradient, metrics = _evaluate([0, -1, 2, -1])
  expected, labelled_gradient, _ = _evaluate([0, 2], _LOGITS[[0, 2]])
  assert loss == pytest.approx(expected, rel=1e-6)
  np.testing.assert_allclose(gradient[[0, 2]], labelled_gradient, atol=1e-7)
  np.testing.assert_array_equal(gradient[[1, 3]], 0)
  assert _numbers(metrics['accuracy']) == [1.0, 2.0]
  assert metrics['loss'][1] == 2


@pytest.mark.parametrize('size', [0, 1, 4])
def test_no_label_at_all_is_loss_and_gradient_zero(size):
  loss, gradient, metrics = _evaluate([-1] * size, _LOGITS[:size])
  assert loss == 0
  np.testing.assert_array_equal(gradient, np.zeros([size, 3]))
  assert _numbers(metrics['loss']) == [0.0, 0.0]
  assert _numbers(metrics['accuracy']) == [0.0, 0.0]


def test_true_labels_influence_nothing():
  reference = _evaluate([0, -1, 1, -1])
  other = _evaluate([0, -1, 1, -1], true_y=tf.constant([2, 2, 2, 2]))
  assert other[0] == reference[0]
  np.testing.assert_array_equal(other[1], reference[1])
  for name in reference[2]:
    assert _numbers(other[2][name]) == _numbers(reference[2][name])


def test_weights_of_classes_are_those_of_examples():
  """As `class_weight` of Keras: the sum over the number of examples."""
  y, weights = [0, 2, -1, 0], np.array([0.5, 2.0, 4.0])
  loss, gradient, metrics = _evaluate(y, class_weights=tuple(weights))
  probabilities = scipy.special.softmax(_LOGITS.astype(float), axis=1)
  own = weights[[0, 2, 0]]
  expected = sklearn.metrics.log_loss(
    [0, 2, 0],
    probabilities[[0, 1, 3]],
    labels=range(3),
    sample_weight=own,
  )
  assert loss == pytest.approx(expected * own.sum() / 3, rel=1e-6)
  np.testing.assert_allclose(
    gradient[3], 0.5 * (probabilities[3] - np.eye(3)[0]) / 3, atol=1e-6
  )
  assert not gradient[2].any()
  plain, _, plain_metrics = _evaluate(y)
  assert _numbers(metrics['loss']) == _numbers(plain_metrics['loss'])
  even, _, _ = _evaluate(y, class_weights=(1.0, 1.0, 1.0))
  assert even == pytest.approx(plain)


@pytest.mark.parametrize(
  'weights, message',
  [
    ((1.0, 2.0), '2 numbers, and there are 3'),
    ((1.0, 0.0, 1.0), 'positive'),
    # A word of the runner alone.
    ('balanced', "class_weights='balanced' must be a"),
  ],
)
def test_weights_that_do_not_fit(weights, message):
  with pytest.raises(ValueError, match=message):
    _evaluate([0, 1, 2, 0], class_weights=weights)
