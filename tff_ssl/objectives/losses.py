"""Pure loss maths, free of models and augmentation."""

import tensorflow as tf


def masked_cross_entropy(
  labels: tf.Tensor, logits: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
  """Cross-entropy of each example, zero where the mask is zero.

  Args:
    labels: `int32 [n]`; entries under a zero mask may be out of range.
    logits: `float [n, d]`.
    mask: `float32 [n]` of zeros and ones.

  Returns:
    `float32 [n]`, in nats.
  """
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=tf.where(mask > 0, labels, 0), logits=tf.cast(logits, tf.float32)
  )
  return mask * losses


def pseudo_labels(
  logits: tf.Tensor, threshold: float
) -> tuple[tf.Tensor, tf.Tensor]:
  """Pseudo-labels and who passes the threshold; no gradient flows through.

  `argmax(y_bar)` and `1[max(y_bar) >= tau]` of paper 1, Eqs. 4 and 5, with
  `y_bar` the softmax of `logits`.

  Args:
    logits: `float [n, d]`.
    threshold: tau; a value above 1 lets nothing pass.

  Returns:
    Labels `int32 [n]` and mask `float32 [n]`.
  """
  probabilities = tf.nn.softmax(tf.cast(tf.stop_gradient(logits), tf.float32))
  labels = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
  confident = tf.reduce_max(probabilities, axis=-1) >= threshold
  return labels, tf.cast(confident, tf.float32)
