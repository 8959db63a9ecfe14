"""Objectives around an objective: value and gradient against numpy."""

import collections
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_same

from tff_ssl import objectives

_BATCH, _SEED = {'x': tf.constant([1.0])}, tf.constant([0, 0])


class _Linear:
  """The loss <c, w> with metrics of its own; its gradient is c."""

  metric_names = ('loss', 'spread')

  def __init__(self, slopes):
    self._slopes = slopes
    self.given = None

  def __call__(self, predict, batch, anchors, seed):
    self.given = batch, anchors, seed
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


def _random(seed):
  rng = np.random.default_rng(seed)
  return [
    rng.normal(size=shape).astype(np.float32) for shape in [(3, 2), (2,), ()]
  ]


_SLOPES, _WEIGHTS, _ANCHORS, _CORRECTION = map(_random, range(4))
_WEIGHTS[1][0] = 0  # Where an absolute value has no derivative.
_START = tff.learning.models.ModelWeights(_ANCHORS, [tf.constant([7.0])])


def _sum(function, *structures):
  return sum(
    function(*leaves).sum() for leaves in zip(*structures, strict=True)
  )


_LINEAR = _sum(np.multiply, _SLOPES, _WEIGHTS)


def _proximal(mu):
  distance = _sum(lambda w, a: (w - a) ** 2, _WEIGHTS, _ANCHORS)
  pull = [mu * (w - a) for w, a in zip(_WEIGHTS, _ANCHORS, strict=True)]
  wrap = lambda objective: objectives.Proximal(objective, mu)
  return wrap, _START, _LINEAR + mu / 2 * distance, pull


def _lasso(weight):
  penalty = weight * _sum(np.abs, _WEIGHTS)
  shrinkage = [weight * np.sign(w) for w in _WEIGHTS]
  wrap = lambda objective: objectives.L1Penalty(objective, weight)
  return wrap, _START, _LINEAR + penalty, shrinkage


def _corrected():
  term = _sum(np.multiply, _CORRECTION, _WEIGHTS)
  anchors = objectives.Correction(_START, _CORRECTION)
  return objectives.Corrected, anchors, _LINEAR + term, _CORRECTION


def _weighted():
  wrap = lambda objective: objectives.WeightedLoss(objective, 2.5)
  return wrap, _START, 2.5 * _LINEAR, [1.5 * slope for slope in _SLOPES]


@pytest.mark.parametrize(
  'wrap, anchors, value, added',
  [
    *map(_proximal, (0.0, 0.01, 2.5)),
    *map(_lasso, (0.0, 0.1, 2.0)),
    _corrected(),
    _weighted(),
  ],
)
def test_value_and_gradient(wrap, anchors, value, added):
  """Where `added` is what is added to the gradient."""
  inner = _Linear(_SLOPES)
  objective = wrap(inner)
  trainable = [tf.constant(w) for w in _WEIGHTS]
  with tf.GradientTape() as tape:
    tape.watch(trainable)
    predict = types.SimpleNamespace(trainable=trainable)
    loss, metrics = objective(predict, _BATCH, anchors, _SEED)
  assert float(loss) == pytest.approx(value, rel=1e-5)
  gradients = tape.gradient(loss, trainable)
  for gradient, slope, more in zip(gradients, _SLOPES, added, strict=True):
    np.testing.assert_allclose(gradient, slope + more, atol=1e-5)
  # Metrics are those of the objective, for runs with and without to compare.
  assert float(metrics['loss'][0]) == pytest.approx(_LINEAR, rel=1e-5)
  assert tuple(metrics) == objective.metric_names == inner.metric_names
  batch, start, seed = inner.given
  assert batch is _BATCH and start is _START and seed is _SEED


def test_what_an_objective_asks_for_is_asked_for_around_it():
  inner = _Linear(_SLOPES)
  names = 'rows', 'needs_labelled_batch', 'teacher', 'survey'
  around = objectives.L1Penalty(objectives.Proximal(inner, 0.5), 0.5)
  assert [getattr(around, name) for name in names] == [
    *('all', False, None, None)
  ]
  asked = ['labelled', True, 'received', print]
  vars(inner).update(zip(names, asked, strict=True))
  assert [getattr(around, name) for name in names] == asked


@pytest.mark.parametrize('weights, strength', [(_WEIGHTS, 0), (_ANCHORS, 100)])
def test_no_strength_and_no_distance_give_the_objective_alone(
  weights, strength
):
  trainable = [tf.constant(w) for w in weights]
  predict = types.SimpleNamespace(trainable=trainable)
  alone, _ = _Linear(_SLOPES)(predict, _BATCH, _START, _SEED)
  with tf.GradientTape() as tape:
    tape.watch(trainable)
    objective = objectives.Proximal(_Linear(_SLOPES), float(strength))
    loss, _ = objective(predict, _BATCH, _START, _SEED)
  assert float(loss) == float(alone)
  assert_same(tape.gradient(loss, trainable), _SLOPES)
