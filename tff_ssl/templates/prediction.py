"""A model at given weights, as objectives and evaluation see it."""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols
from tff_ssl.models import functional, split, structures
from tff_ssl.objectives import losses


class Predictor:
  """Calls a functional model at fixed weights and follows its moving state.

  It is what all objectives are called with. It keeps a list of its calls, from
  which passes are counted.

  Attributes:
    model: The `FunctionalModel`.
    trainable: The trainable weights, a list of tensors.
    non_trainable: The non-trainable ones (moving statistics of batch
      normalisation), after all calls in train mode so far.
  """

  def __init__(
    self,
    model: functional.FunctionalModel,
    trainable: protocols.Structure,
    non_trainable: protocols.Structure,
  ):
    self.model = model
    self.trainable = trainable
    self.non_trainable = non_trainable
    # How many examples went in, and what came out.
    self._calls: list[tuple[tf.Tensor, Any]] = []

  def __call__(
    self, x: tf.Tensor, *, training: bool = True, seed: tf.Tensor | None = None
  ) -> tf.Tensor:
    """Returns the outputs for `x`, `[n, ...]` with n >= 1.

    In train mode a seed is needed, `int32 [2]`.
    """
    outputs, self.non_trainable = self._call_model(x, seed, training)
    self._note(x, outputs)
    return outputs

  def _call_model(self, x, seed, training=True):
    return self.model.predict(
      self.trainable, self.non_trainable, x, training=training, seed=seed
    )

  def of_any_number(
    self, x: tf.Tensor, filler: tf.Tensor, seed: tf.Tensor
  ) -> tf.Tensor:
    """Returns train-mode outputs of inputs of which there may be none.

    The filler, inputs `[m, ...]` with m >= 1, may stand in for them:
    convolutions fail in TensorFlow 2.14 on a batch that turns out empty. Do not
    call this with a model that has moving statistics: the filler would move
    them.
    """
    # A branch of `tf.cond` would cost a quarter of a step.
    count = structures.size(x)
    stand_in = structures.rows(filler, 0, tf.cast(tf.equal(count, 0), tf.int32))
    outputs, self.non_trainable = self._call_model(
      structures.concat([x, stand_in]), seed
    )
    losses.check_logits(outputs)
    outputs = outputs[:count]
    self._note(x, outputs)
    return outputs

  def probe(
    self, x: tf.Tensor, seed: tf.Tensor, if_empty: tf.Tensor | None = None
  ) -> tf.Tensor:
    """Returns train-mode outputs that the moving state does not follow.

    It is for inputs whose statistics inference must not know, such as perturbed
    or mixed ones. Of no inputs, of which batch normalisation has no statistics,
    it returns `if_empty`. Call it outside of `tf.cond`: passes inside of it
    cannot be counted.
    """

    def call():
      return self._call_model(x, seed)[0]

    if if_empty is None:
      outputs = call()
    else:
      outputs = tf.cond(structures.size(x) > 0, call, lambda: if_empty)
    self._note(x, outputs)
    return outputs

  def near(self, change: protocols.Structure) -> 'Predictor':
    """Returns the predictor at other weights, `trainable + change`.

    Its passes count here; the moving state does not follow. The gradient of
    what is made of its outputs is that at these weights.
    """
    weights = tf.nest.map_structure(tf.add, self.trainable, change)
    other = Predictor(self.model, weights, self.non_trainable)
    other._calls = self._calls
    return other

  def at(
    self, weights: tff.learning.models.ModelWeights, x: tf.Tensor
  ) -> tf.Tensor:
    """Returns the outputs of the same model at other weights, at inference.

    No gradient flows to these weights.
    """
    outputs, _ = self.model.predict(
      weights.trainable, weights.non_trainable, x, training=False
    )
    outputs = tf.nest.map_structure(tf.stop_gradient, outputs)
    self._note(x, outputs)
    return outputs

  def _note(self, x, outputs):
    self._calls.append((structures.size(x), outputs))

  @property
  def outputs(self) -> list[Any]:
    """What each call so far has returned."""
    return [outputs for _, outputs in self._calls]

  def passes(self, gradients: list[protocols.Structure | None]) -> tf.Tensor:
    """Counts how many examples went forward so far, and back: `float32 [2]`.

    An example counts as often as it goes through: two views of it are two
    passes. Of the gradients, in the structure of `outputs`, those of an output
    into which none flows back are `None`. Those that an objective takes itself,
    such as to find an adversarial direction, are not counted.
    """
    forward, backward = tf.constant(0), tf.constant(0)
    for (size, _), gradient in zip(self._calls, gradients, strict=True):
      forward += size
      if any(part is not None for part in tf.nest.flatten(gradient)):
        backward += size
    return tf.cast(tf.stack([forward, backward]), tf.float32)

  @property
  def has_moving_state(self) -> bool:
    """Whether train-mode calls change weights (batch normalisation)."""
    return bool(tf.nest.flatten(self.non_trainable))


def probabilities(
  model: functional.FunctionalModel,
  weights: tff.learning.models.ModelWeights,
  x: tf.Tensor,
  batch_size: int = 256,
) -> tf.Tensor:
  """Returns a classifier's probabilities at inference, `float32 [n, d]`.

  The batch size bounds the memory of one forward pass.
  """

  def predict(batch):
    logits, _ = model.predict(
      weights.trainable, weights.non_trainable, batch, training=False
    )
    losses.check_logits(logits)
    return tf.nn.softmax(tf.cast(logits, tf.float32))

  num_batches = -(-structures.size(x) // batch_size)
  # The result has a column for each class, of no inputs, too. `x[:0]` must not
  # tell how many: if a batch is known to be empty, TensorFlow optimises a
  # convolution away and then fails at the next one.
  num_classes = split.features_spec(model).shape[1]
  parts = tf.TensorArray(
    tf.float32,
    num_batches,
    infer_shape=False,
    element_shape=[None, num_classes],
  )
  _, parts = tf.while_loop(
    lambda step, _: step < num_batches,
    lambda step, parts: (
      step + 1,
      parts.write(
        step,
        predict(structures.rows(x, step * batch_size, (step + 1) * batch_size)),
      ),
    ),
    (tf.constant(0), parts),
  )
  return parts.concat()


def forward_passes(x: tf.Tensor, times: int = 1) -> tf.Tensor:
  """Counts the passes of inputs at inference, through as many models."""
  return tf.cast(tf.stack([times * structures.size(x), 0]), tf.float32)
