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
