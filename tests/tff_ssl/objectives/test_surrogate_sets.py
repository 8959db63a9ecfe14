"""FedUL's objective: its loss, what it reports, and what it refuses."""

import collections

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from tff_ssl import objectives
from tff_ssl.augmentation import views

_PRIORS = np.array([[0.8, 0.2], [0.1, 0.9], [0.5, 0.5]])
_SHARES = np.array([0.5, 0.3, 0.2])
_LOGITS = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [-4.0, 0.0]])
_SETS = np.array([0, 1, 2, 0])


def _evaluate(objective, **extra):
  batch = collections.OrderedDict(
    x=tf.zeros([4, 1]),
    y=tf.constant(_SETS, tf.int32),
    class_priors=tf.constant(_PRIORS, tf.float32),
    set_shares=tf.constant(_SHARES, tf.float32),
    **extra,
  )
  return objective(
    lambda x, **_: tf.constant(_LOGITS, tf.float32),
    batch,
    None,
    tf.constant([0, 0]),
  )


def _expected_q(test_prior):
  eta = scipy.special.softmax(_LOGITS, axis=1)
  q = (eta / test_prior) @ _PRIORS.T * _SHARES
  return q / q.sum(axis=1, keepdims=True)


@pytest.mark.parametrize('test_prior', [None, (0.9, 0.1)])
def test_loss_is_that_of_the_set(test_prior):
  objective = objectives.SurrogateSets(
    views.PlainViews(), test_prior=test_prior
  )
  loss, metrics = _evaluate(objective)
  q = _expected_q(test_prior or (0.5, 0.5))
  losses = -np.log(q[np.arange(4), _SETS])
  assert float(loss) == pytest.approx(losses.mean(), rel=1e-5)
  total, count = metrics['loss']
  assert float(total) == pytest.approx(losses.sum(), rel=1e-5)
  assert float(count) == 4
  right = (q.argmax(axis=1) == _SETS).sum()
  np.testing.assert_array_equal(metrics['set_accuracy'], [right, 4])


def test_accuracy_is_that_of_known_classes():
  objective = objectives.SurrogateSets(views.PlainViews())
  # Predicted are 0, 1, 0 and 1.
  _, metrics = _evaluate(objective, true_y=tf.constant([0, 0, -1, 1]))
  np.testing.assert_array_equal(metrics['accuracy'], [2, 3])
  _, metrics = _evaluate(objective)
  np.testing.assert_array_equal(metrics['accuracy'], [0, 0])
  assert tuple(metrics) == objective.metric_names


def test_published_code_has_its_own_loss():
  objective = objectives.SurrogateSets(views.PlainViews(), 'published_code')
  loss, _ = _evaluate(objective)
  log_p = scipy.special.log_softmax(_expected_q((0.5, 0.5)), axis=1)
  assert float(loss) == pytest.approx(
    -log_p[np.arange(4), _SETS].mean(), rel=1e-5
  )


def test_published_code_has_no_test_prior():
  with pytest.raises(ValueError, match="not fit surrogate_loss='published_c"):
    objectives.SurrogateSets(
      views.PlainViews(), 'published_code', test_prior=(0.5, 0.5)
    )
