"""A forward pass of those examples only that the loss takes.

Losses on pseudo-labels multiply an example by zero where no prediction is sure
enough. Early in training that is most of them, and the pass that trains costs
more than all others together.
"""

import tensorflow as tf

from tff_ssl.models import structures


def predict_selected(
  predict, x: tf.Tensor, mask: tf.Tensor, seed: tf.Tensor, like: tf.Tensor
) -> tf.Tensor:
  """Returns train-mode logits of the selected examples, and 0 for the others.

  Where the loss multiplies by the mask, it and its gradient are those of a pass
  of all examples, but for what a model draws (dropout), if the model takes each
  example by itself. With moving statistics, which all examples move, all go
  through.

  Args:
    predict: A `Predictor`.
    x: Inputs `[n, ...]`.
    mask: `float32 [n]`, weights from 0 to 1.
    seed: `int32 [2]`.
    like: Logits `[n, d]` of a prediction on the same examples, for shape and
      type. Examples for which they are not finite go through, too, so that a
      model which has diverged shows in the loss.

  Returns:
    Logits `[n, d]`.
  """
  if predict.has_moving_state:
    return predict(x, seed=seed)
  is_finite = tf.reduce_all(tf.math.is_finite(like), axis=-1)
  selected = tf.where((mask > 0) | ~is_finite)
  logits = predict.probe(
    structures.gather(x, selected[:, 0]),
    seed,
    if_empty=tf.stop_gradient(like[:0]),
  )
  return tf.scatter_nd(selected, logits, tf.shape(like, selected.dtype))
