"""The linear correction: value and gradient against numpy."""

import collections
import types

import numpy as np
import tensorflow as tf

from tff_ssl import objectives

_SHAPES = [(3, 2), (2,), ()]


class _Squares:
  """The loss ||w - start||^2 / 2, whose gradient is w - start."""

  metric_names = ('loss',)

  def __call__(self, predict, batch, anchors, seed):
    del batch, seed
    loss = tf.add_n(
      [
        tf.reduce_sum((weight - start) ** 2) / 2
        for weight, start in zip(predict.trainable, anchors, strict=True)
      ]
    )
    return loss, collections.OrderedDict(loss=(loss, tf.constant(1.0)))


def _random(seed):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]


def test_value_gradient_and_metrics():
  weights, start, correction = _random(0), _random(1), _random(2)
  trainable = [tf.constant(w) for w in weights]
  objective = objectives.Corrected(_Squares())
  assert objective.metric_names == ('loss',)
  with tf.GradientTape() as tape:
    tape.watch(trainable)
    loss, metrics = objective(
      types.SimpleNamespace(trainable=trainable),
      None,
      objectives.Correction(start, correction),
      None,
    )
  own = sum(
    ((w - s) ** 2).sum() / 2 for w, s in zip(weights, start, strict=True)
  )
  term = sum((c * w).sum() for c, w in zip(correction, weights, strict=True))
  np.testing.assert_allclose(loss, own + term, rtol=1e-5)
  # The metric is the objective's, for runs with and without to compare.
  np.testing.assert_allclose(metrics['loss'][0], own, rtol=1e-5)
  for gradient, w, s, c in zip(
    tape.gradient(loss, trainable), weights, start, correction, strict=True
  ):
    np.testing.assert_allclose(gradient, w - s + c, atol=1e-6)
