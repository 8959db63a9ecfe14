"""Mixup: training on mixtures of two examples and of their losses.

Zhang et al., mixup: Beyond Empirical Risk Minimization (arXiv 1710.09412):
with lambda from Beta(a, a), an input `lambda x_1 + (1 - lambda) x_2` is to be
labelled y_1 with weight lambda and y_2 with weight 1 - lambda.
"""

from __future__ import annotations

from etils import epy

from tff_ssl import checks
from tff_ssl.common.setting import Setting, unless

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.models import structures

MIXUP_WEIGHT = Setting(
  'mixup_weight',
  float,
  'Weight of the loss on mixtures of examples; 0 mixes none.',
  at_least=0,
)
MIXUP_CONCENTRATION = Setting(
  'mixup_concentration',
  float,
  'a of the Beta(a, a) that mixtures are drawn by, above 0.',
  above=0,
  used_when=(unless('mixup_weight', 0, 'mixes nothing'),),
)


def beta_weights(seed: tf.Tensor, shape, concentration: float) -> tf.Tensor:
  """Draws mixing weights from Beta(a, a), a function of the seed alone.

  `X / (X + Y)` has that distribution for independent X and Y from Gamma(a).

  Args:
    seed: `int32 [2]`.
    shape: Of the result; `[]` for one weight, `[n]` for one per example.
    concentration: a > 0; 1 is uniform, less prefers 0 and 1 to the middle.

  Returns:
    `float32` in [0, 1].

  Raises:
    ValueError: If `concentration` is out of range.
  """
  checks.numbers_at_least(0, above=True, concentration=concentration)
  x, y = (
    tf.random.stateless_gamma(
      shape, randomness.fold_in(seed, place), float(concentration)
    )
    for place in (0, 1)
  )
  return x / (x + y)


def mix(first: tf.Tensor, second: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
  """Returns `weights * first + (1 - weights) * second`.

  Args:
    first: `float [n, ...]`, inputs or logits.
    second: `float [n, ...]`.
    weights: `float32`, one for all `[]`, or one per example `[n]`.

  Returns:
    `float [n, ...]`.

  Raises:
    TypeError: If they are structures of several inputs.
  """
  structures.refuse_several(first, 'Mixup needs')
  ones = [1] * (first.shape.rank - weights.shape.rank)
  shape = tf.concat([tf.shape(weights), tf.constant(ones, tf.int32)], 0)
  weights = tf.cast(tf.reshape(weights, shape), first.dtype)
  return weights * first + (1 - weights) * second


def mixed_cross_entropy(
  first_labels: tf.Tensor,
  second_labels: tf.Tensor,
  logits: tf.Tensor,
  weights: tf.Tensor,
) -> tf.Tensor:
  """Cross-entropy of each mixture, mixed as its example was.

  Args:
    first_labels: `int32 [n]`, of the examples that have weight `weights`.
    second_labels: `int32 [n]`, of the others.
    logits: `float [n, d]`.
    weights: `float32`, `[]` or `[n]`.

  Returns:
    `float32 [n]`, in nats.
  """
  logits = tf.cast(logits, tf.float32)
  first, second = (
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    for labels in (first_labels, second_labels)
  )
  return mix(first, second, weights)
