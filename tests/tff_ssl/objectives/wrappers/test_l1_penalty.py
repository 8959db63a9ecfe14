"""The L1 penalty: value and gradient against numpy."""

import collections
import types

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import objectives

_WEIGHTS = [np.float32([[1.5, -2.0], [0.0, 0.25]]), np.float32([-3.0])]


class _Sum:
  """The sum of all weights, whose gradient is 1."""

  metric_names = ('loss',)

  def __call__(self, predict, batch, anchors, seed):
    del batch, anchors, seed
    loss = tf.add_n([tf.reduce_sum(weight) for weight in predict.trainable])
    return loss, collections.OrderedDict(loss=(loss, tf.constant(1.0)))


def _evaluate(l1_weight):
  trainable = [tf.constant(weight) for weight in _WEIGHTS]
  with tf.GradientTape() as tape:
    tape.watch(trainable)
    loss, metrics = objectives.L1Penalty(_Sum(), l1_weight)(
      types.SimpleNamespace(trainable=trainable), None, None, None
    )
  return float(loss), tape.gradient(loss, trainable), metrics


@pytest.mark.parametrize('l1_weight', [0.0, 0.1, 2.0])
def test_value_and_gradient(l1_weight):
  loss, gradients, metrics = _evaluate(l1_weight)
  # The sum is -3.25, the sum of absolute values 6.75.
  assert loss == pytest.approx(-3.25 + l1_weight * 6.75)
  for gradient, weight in zip(gradients, _WEIGHTS, strict=True):
    np.testing.assert_allclose(gradient, 1 + l1_weight * np.sign(weight))
  assert float(metrics['loss'][0]) == pytest.approx(-3.25)


def test_metric_names_are_those_of_the_objective():
  assert objectives.L1Penalty(_Sum(), 0.1).metric_names == ('loss',)


@pytest.mark.parametrize('l1_weight', [-0.1, float('nan'), 'heavy'])
def test_weight_must_not_be_negative(l1_weight):
  with pytest.raises(ValueError, match='l1_weight must be a .*number >= 0'):
    objectives.L1Penalty(_Sum(), l1_weight)
