"""The proximal term of FedProx: value and gradient against numpy."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import objectives

ModelWeights = tff.learning.models.ModelWeights
_SEED = tf.constant([0, 0])


class _Linear:
  """The loss <c, w> with metrics of its own; its gradient is c."""

  metric_names = ('loss', 'spread')

  def __init__(self, slopes):
    self._slopes = slopes

  def __call__(self, predict, batch, anchors, seed):
    del batch, anchors, seed
    loss = tf.add_n(
      [
        tf.reduce_sum(slope * weight)
        for slope, weight in zip(self._slopes, predict.trainable, strict=True)
      ]
    )
    return loss, collections.OrderedDict(
      loss=(loss, tf.constant(1.0)),
      spread=(tf.constant(2.0), tf.constant(3.0)),
    )


class _Weights:
  def __init__(self, trainable):
    self.trainable = trainable


def _random(seed):
  rng = np.random.default_rng(seed)
  return [
    rng.normal(size=shape).astype(np.float32) for shape in [(3, 2), (2,), ()]
  ]


def _evaluate(strength, slopes, weights, anchors):
  trainable = [tf.constant(w) for w in weights]
  moving = [tf.constant([7.0])]
  with tf.GradientTape() as tape:
    tape.watch(trainable)
    loss, metrics = objectives.Proximal(_Linear(slopes), strength)(
      _Weights(trainable), None, ModelWeights(anchors, moving), _SEED
    )
  return float(loss), tape.gradient(loss, trainable), metrics


@pytest.mark.parametrize('strength', [0.0, 0.01, 2.5])
def test_value_and_gradient(strength):
  slopes, weights, anchors = _random(0), _random(1), _random(2)
  loss, gradients, metrics = _evaluate(strength, slopes, weights, anchors)
  linear = sum((s * w).sum() for s, w in zip(slopes, weights, strict=True))
  distance = sum(
    ((w - a) ** 2).sum() for w, a in zip(weights, anchors, strict=True)
  )
  assert loss == pytest.approx(linear + strength / 2 * distance, rel=1e-5)
  for gradient, slope, weight, anchor in zip(
    gradients, slopes, weights, anchors, strict=True
  ):
    np.testing.assert_allclose(
      gradient, slope + strength * (weight - anchor), atol=1e-5
    )
  # Metrics are those of the objective, without the term.
  assert float(metrics['loss'][0]) == pytest.approx(linear, rel=1e-5)
  assert list(metrics) == ['loss', 'spread']


def test_no_strength_is_the_objective_alone():
  slopes, weights, anchors = _random(0), _random(1), _random(2)
  loss, gradients, _ = _evaluate(0.0, slopes, weights, anchors)
  alone = _Linear(slopes)(
    _Weights([tf.constant(w) for w in weights]), None, None, _SEED
  )[0]
  assert loss == float(alone)
  for gradient, slope in zip(gradients, slopes, strict=True):
    np.testing.assert_array_equal(gradient, slope)


def test_no_pull_at_the_start():
  slopes, weights = _random(0), _random(1)
  _, gradients, _ = _evaluate(100.0, slopes, weights, weights)
  for gradient, slope in zip(gradients, slopes, strict=True):
    np.testing.assert_array_equal(gradient, slope)


def test_metric_names_are_those_of_the_objective():
  names = objectives.Proximal(_Linear([]), 0.1).metric_names
  assert names == ('loss', 'spread')


@pytest.mark.parametrize('strength', [-0.1, float('nan')])
def test_strength_must_not_be_negative(strength):
  with pytest.raises(ValueError, match='proximal_strength must be a .*number'):
    objectives.Proximal(_Linear([]), strength)
