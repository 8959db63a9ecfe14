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

  @property
  def has_moving_state(self) -> bool:
    """Whether train-mode calls change weights (batch normalisation)."""
    return bool(tf.nest.flatten(self.non_trainable))
