"""Sharpness-aware consistency, the objective of (FL)^2's clients.

Lee et al., (FL)^2: Overcoming Few Labels in Federated Semi-Supervised Learning
(NeurIPS 2024, arXiv 2410.23227). With A the strong view, B the minibatch, whose
`y` are pseudo-labels, and S the examples of B whose pseudo-label has a
confidence of c or more:

```math
L_a = 1/|B| sum_{x in B} CE(f_w(A(x)), y)
L_cs = 1/|B| sum_{x in S} KL(f_w(A(x)), f_{w + delta}(A(x)))
delta = rho T^2 g / |T g|
```

with g the gradient of the cross-entropy over S, and T = abs(w) + eta. A step
goes along the gradient of L_a at w plus that of L_cs at w + delta; none flows
through delta or the first argument of KL. delta is the worst direction of ASAM
(Kwon et al., arXiv 2102.11600, Eq. 8): where the model is sure, its prediction
is to be the same in a neighbourhood of the weights.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, unless
from tff_ssl.objectives.supervised import Checked

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.objectives import losses, selection

# Labels of the model in training are made in the pass that is compared.
_BY_RECEIVED = unless('teacher', 'trained', 'labels while it trains')
SHARPNESS_RADIUS = Setting(
  'sharpness_radius',
  float,
  "rho, how far the neighbour lies whose prediction is to be the model's, "
  'where it is sure; 0 compares with none.',
  at_least=0,
  needed_by='(FL)^2, of which the paper names two',
  used_when=(_BY_RECEIVED,),
)
SHARPNESS_THRESHOLD = Setting(
  'sharpness_threshold',
  float,
  'Confidence of a pseudo-label from which the neighbour is compared, in [0, '
  '1].',
  at_least=0,
  at_most=1,
  needed_by='(FL)^2',
  used_when=(
    unless('sharpness_radius', 0, 'compares with none'),
    _BY_RECEIVED,
  ),
)
# The key of minibatches that holds max q of each example, `float32 [n]`.
CONFIDENCE = 'confidence'
# Of ASAM, so that a weight of 0 moves, too.
_ETA = 0.01


@dataclasses.dataclass(frozen=True)
class SharpnessAwareConsistency(Checked):
  """Pseudo-labels, and the same prediction in a neighbourhood of the weights.

  Minibatches hold `y`, pseudo-labels, and `confidence`, `float32 [n]`, the
  probability by which each was given. T is 1 for tensors of one dimension: for
  biases as in ASAM's code, and for factors of normalisation, which it scales.

  Attributes:
    views: Gives the strong view (`tff_ssl.augmentation`).
    sharpness_radius: rho >= 0. The paper says .1 in Section 5.1 and .5 in its
      appendix; its code has .1. With 0 the loss is L_a.
    sharpness_threshold: c.
  """

  views: protocols.Views
  sharpness_radius: float = 0.1
  sharpness_threshold: float = 0.95

  metric_names = ('loss', 'sharpness')
  settings = (SHARPNESS_RADIUS, SHARPNESS_THRESHOLD)

  def __call__(self, predict, batch, anchors, seed):
    del anchors
    strong = self.views.strong(batch['x'], randomness.fold_in(seed, 0))
    of_forward = randomness.fold_in(seed, 1)
    has_label = tf.cast(batch['y'] >= 0, tf.float32)
    sure = tf.cast(batch[CONFIDENCE] >= self.sharpness_threshold, tf.float32)
    logits, sharpness = compared(
      predict,
      lambda: predict(strong, seed=of_forward),
      strong,
      batch['y'],
      has_label,
      sure,
      self.sharpness_radius,
      of_forward,
    )
    total, metrics = losses.supervised(batch['y'], logits)
    if self.sharpness_radius:
      total += sharpness[0] / tf.maximum(metrics['loss'][1], 1.0)
    return total, collections.OrderedDict(
      loss=metrics['loss'], sharpness=sharpness
    )


def compared(
  predict,
  first: Callable[[], tf.Tensor],
  strong: protocols.Structure,
  labels: tf.Tensor,
  mask: tf.Tensor,
  sure: tf.Tensor,
  radius: float,
  seed: tf.Tensor,
) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
  """Returns logits of the strong view, and how they differ in a neighbourhood.

  Where no example of the minibatch is in S, none goes through the neighbour.

  Args:
    predict: A `Predictor`.
    first: Returns the logits, `float [n, d]`, in train mode with the seed.
    strong: The strong view, `[n, ...]`.
    labels: Pseudo-labels, `int32 [n]`.
    mask: `float32 [n]`, 0 where an example has none.
    sure: `float32 [n]`, 1 in S, of those that have one, else 0.
    radius: rho; with 0 there is no neighbour.
    seed: `int32 [2]`, of both passes.

  Returns:
    The logits; and the sum over S of `KL(f_w, f_{w + delta})`, examples counted
    by the mask, with that count, both `float32` scalars.
  """
  if not radius:
    return first(), (tf.constant(0.0), tf.constant(0.0))
  sure *= mask
  with tf.GradientTape() as tape:
    tape.watch(predict.trainable)
    logits = first()
    of_sure = tf.reduce_sum(losses.masked_cross_entropy(labels, logits, sure))
  change = adaptive_perturbation(
    predict.trainable, tape.gradient(of_sure, predict.trainable), radius
  )
  here = tf.stop_gradient(logits)
  # All of the first pass, so that dropout is the same.
  there = selection.predict_selected(
    predict.near(change), strong, mask * tf.reduce_max(sure), seed, here
  )
  divergences = tf.reduce_sum(sure * losses.divergence(here, there))
  return logits, (divergences, tf.reduce_sum(sure))


def adaptive_perturbation(
  weights: protocols.Structure, gradient: protocols.Structure, radius: float
) -> protocols.Structure:
  """Returns `rho T^2 g / |T g|`, in the structure of the weights (see above).

  No gradient flows through it. It is 0 where the gradient is.

  Args:
    weights: Trainable weights, a list of tensors.
    gradient: Tensors like these, or `None` for zeros.
    radius: rho.
  """
  scales = [
    tf.abs(weight) + _ETA if weight.shape.rank > 1 else tf.ones_like(weight)
    for weight in weights
  ]
  scaled = [
    tf.zeros_like(scale) if part is None else scale * tf.convert_to_tensor(part)
    for scale, part in zip(scales, gradient, strict=True)
  ]
  norm = tf.linalg.global_norm([tf.cast(part, tf.float32) for part in scaled])
  factor = tf.math.divide_no_nan(radius, norm)
  return [
    tf.stop_gradient(tf.cast(factor, part.dtype) * scale * part)
    for scale, part in zip(scales, scaled, strict=True)
  ]
