"""A model at given weights, as objectives and evaluation see it."""

import tensorflow as tf


class Predictor:
  """Calls a functional model at fixed weights and follows its moving state.

  Attributes:
    non_trainable: The non-trainable weights (batch normalisation's moving
      statistics) after all training calls so far.
    trainable: The trainable weights.
    model: The `FunctionalModel`.
  """

  def __init__(self, model, trainable, non_trainable):
    self.model = model
    self.trainable = trainable
    self.non_trainable = non_trainable

  def __call__(
    self, x: tf.Tensor, *, training: bool = True, seed: tf.Tensor | None = None
  ) -> tf.Tensor:
    """Returns the outputs for `x`; `seed` is needed when training."""
    outputs, self.non_trainable = self.model.predict(
      self.trainable, self.non_trainable, x, training=training, seed=seed
    )
    return outputs

  def probe(self, x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns train-mode outputs that the moving state does not follow.

    Args:
      x: Inputs that the model need not know at inference, such as perturbed or
        mixed ones.
      seed: `int32 [2]`.
    """
    outputs, _ = self.model.predict(
      self.trainable, self.non_trainable, x, training=True, seed=seed
    )
    return outputs

  def at(self, weights, x: tf.Tensor) -> tf.Tensor:
    """Returns the outputs of the same model at other weights, at inference.

    Args:
      weights: `ModelWeights`; no gradient flows to them.
      x: Inputs.
    """
    outputs, _ = self.model.predict(
      weights.trainable, weights.non_trainable, x, training=False
    )
    return tf.nest.map_structure(tf.stop_gradient, outputs)

  @property
  def has_moving_state(self) -> bool:
    """Whether train-mode calls change weights (batch normalisation)."""
    return bool(tf.nest.flatten(self.non_trainable))


def probabilities(model, weights, x: tf.Tensor, batch_size: int) -> tf.Tensor:
  """Returns a classifier's probabilities at inference, `float32 [n, d]`.

  Args:
    model: The `FunctionalModel`.
    weights: `ModelWeights` of tensors.
    x: Inputs `[n, ...]`, as the model takes them.
    batch_size: Inputs of one forward pass, which bounds its memory.
  """

  def predict(inputs):
    logits, _ = model.predict(
      weights.trainable, weights.non_trainable, inputs, training=False
    )
    return tf.nn.softmax(tf.cast(logits, tf.float32))

  num_batches = -(-tf.shape(x)[0] // batch_size)
  # Of no inputs, too, it must be known how many classes there are.
  none = predict(x[:0])
  parts = tf.TensorArray(
    tf.float32,
    num_batches,
    infer_shape=False,
    element_shape=[None, none.shape[1]],
  )
  _, parts = tf.while_loop(
    lambda step, _: step < num_batches,
    lambda step, parts: (
      step + 1,
      parts.write(
        step, predict(x[step * batch_size : (step + 1) * batch_size])
      ),
    ),
    (tf.constant(0), parts),
  )
  return tf.concat([none, parts.concat()], 0)


def objective_gradient(model, objective, weights, batch, anchors, seed):
  """Calls an objective in train mode and differentiates its loss.

  Args:
    model: The `FunctionalModel`.
    objective: See `tff_ssl.objectives`.
    weights: `ModelWeights` of tensors.
    batch: The minibatch.
    anchors: `ModelWeights` that training started from.
    seed: `int32 [2]`.

  Returns:
    The gradient in the structure of `weights.trainable`, the objective's
    metrics, and the new non-trainable weights.
  """
  with tf.GradientTape() as tape:
    tape.watch(weights.trainable)
    predict = Predictor(model, weights.trainable, weights.non_trainable)
    loss, metrics = objective(predict, batch, anchors, seed)
  gradient = tape.gradient(
    loss,
    weights.trainable,
    unconnected_gradients=tf.UnconnectedGradients.ZERO,
  )
  return gradient, metrics, predict.non_trainable
