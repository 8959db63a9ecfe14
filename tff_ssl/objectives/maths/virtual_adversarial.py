"""Virtual adversarial training: the direction in which predictions change most.

Miyato et al., Virtual Adversarial Training (arXiv 1704.03976), Section 3.3. For
a small perturbation r, KL(p(x) || p(x + r)) is r^T H r / 2, so that its largest
growth lies along the first eigenvector of H. One power iteration from a random
d gives an estimate of it, H d / |H d|. Miyato et al. and those who follow them
estimate H d by a finite difference, the gradient of the divergence at
x + xi d. With xi = 1e-6 and pixels of size 1, that is a step which float32
cannot make. Here H d is exact, the limit of small xi,

```
H d = J^T (diag(p) - p p^T) J d,     J = d logits / d x
```

at the cost of one more backward pass than the finite difference.
"""

from collections.abc import Callable

import tensorflow as tf

from tff_ssl.models import structures


def direction(
  forward: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Estimates where each example's prediction changes most.

  Args:
    forward: From inputs to logits `[n, d]`; it is called once.
    x: Inputs `float32 [n, ...]`.
    seed: `int32 [2]`, of the direction that the power iteration starts with.

  Returns:
    The logits of `x`, and directions in the shape of `x`, each of L2 norm 1, or
    0 where the prediction changes in none; no gradient flows through these.

  Raises:
    TypeError: If `x` is a structure of several inputs.
  """
  structures.refuse_several(x, 'Virtual adversarial training needs')
  start = _normalise(tf.random.stateless_normal(tf.shape(x), seed))
  # J d is the derivative of J^T u, which is linear in u, at any u. TensorFlow's
  # forward mode does not trace through all layers (batch normalisation).
  with tf.GradientTape() as outer:
    with tf.GradientTape(persistent=True) as tape:
      tape.watch(x)
      logits = forward(x)
    dual = tf.zeros_like(logits)
    outer.watch(dual)
    pulled_back = tape.gradient(
      logits,
      x,
      output_gradients=dual,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
  change = outer.gradient(
    pulled_back,
    dual,
    output_gradients=start,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
  probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
  change = tf.cast(change, tf.float32)
  mean = tf.reduce_sum(probabilities * change, axis=-1, keepdims=True)
  product = tape.gradient(
    logits,
    x,
    output_gradients=tf.cast(probabilities * (change - mean), logits.dtype),
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
  return logits, tf.stop_gradient(_normalise(product))


def _normalise(values):
  """Scales each example's values to L2 norm 1; zeros stay zeros."""
  axes = list(range(1, values.shape.rank))
  # By the largest first: squares of small gradients are 0 in float32.
  largest = tf.reduce_max(tf.abs(values), axis=axes, keepdims=True)
  values = tf.math.divide_no_nan(values, largest)
  norm = tf.sqrt(tf.reduce_sum(tf.square(values), axis=axes, keepdims=True))
  return tf.math.divide_no_nan(values, norm)
