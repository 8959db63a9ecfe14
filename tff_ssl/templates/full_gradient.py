"""The gradient of a participant's objective on all its data.

Source: Zhang et al. (arXiv 2008.11364), Definition 1, measures "the gradient of
w_k evaluated on all data held by the k-th user" at the weights that the user
starts a round from.
"""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, protocols, randomness
from tff_ssl.models import functional
from tff_ssl.templates import local_training, minibatches

_ORDER = 0
_BATCH = 1


def full_gradient(
  model: functional.FunctionalModel,
  objective: protocols.Objective,
  weights: tff.learning.models.ModelWeights,
  examples: collections.OrderedDict[str, tf.Tensor],
  *,
  batch_size: int,
  seed: tf.Tensor,
  with_labelled: bool = False,
  constants: collections.OrderedDict[str, tf.Tensor] | None = None,
) -> protocols.Structure:
  """Returns the mean gradient over all examples, in one compiled loop.

  Each example is seen once, in train mode and at the same weights. The order of
  examples is random; it matters with batch normalisation only. The gradients of
  minibatches are weighted by their numbers of examples. This is exact for
  objectives that are means over the minibatch: CRL is one, and the supervised
  objective is one if every example has a label.

  Args:
    model: The `FunctionalModel`.
    objective: See `tff_ssl.objectives`. Its anchors are `weights`.
    weights: `ModelWeights` of tensors.
    examples: Tensors with a leading dimension n (`client_data.collect`).
    batch_size: Examples in a minibatch, >= 1; the last one may be smaller.
    seed: `int32 [2]`, from which views, dropout and order derive. It may be
      the seed of the participant's training, which draws other numbers with it.
    with_labelled: Whether the objective wants a second minibatch, `labelled`:
      the examples of the first that have a label.
    constants: Tensors that every minibatch carries; see `LocalTraining.run`.
      Beside them, `step` is 0.

  Returns:
    Tensors in the structure of `weights.trainable`; zeros where n = 0.

  Raises:
    ValueError: If `batch_size` is out of range.
  """
  checks.integers_at_least(1, batch_size=batch_size)
  seed = randomness.fold_in(seed, randomness.Purpose.FULL_GRADIENT)
  size = tf.shape(examples['y'])[0]
  order = tf.random.experimental.stateless_shuffle(
    tf.range(size), randomness.fold_in(seed, _ORDER)
  )

  # A function of its own, as the training loop's step is and for its reason.
  @tf.function(autograph=False, experimental_attributes={'_noinline': True})
  def batch_gradient(weights, batch, seed):
    return local_training.objective_gradient(
      model, objective, weights, batch, weights, seed
    ).gradient

  def body(step, mean):
    indices = order[step * batch_size : (step + 1) * batch_size]
    batch = minibatches.gather(examples, indices)
    if with_labelled:
      batch['labelled'] = minibatches.gather(
        batch, tf.where(batch['y'] >= 0)[:, 0]
      )
    # No step of a training: the gradient is that of the weights before them.
    batch.update(constants or {}, step=tf.constant(0))
    batch_seed = randomness.fold_in(randomness.fold_in(seed, _BATCH), step)
    gradient = batch_gradient(weights, batch, batch_seed)
    share = tf.size(indices) / size
    mean = tf.nest.map_structure(
      lambda total, part: total + tf.cast(share, part.dtype) * part,
      mean,
      gradient,
    )
    return step + 1, mean

  weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
  num_batches = -(-size // batch_size)
  _, mean = tf.while_loop(
    lambda step, _: step < num_batches,
    body,
    (
      tf.constant(0),
      tf.nest.map_structure(tf.zeros_like, weights.trainable),
    ),
  )
  return mean


def gradient_of_training(
  training: local_training.LocalTraining,
  weights: tff.learning.models.ModelWeights,
  examples: collections.OrderedDict[str, tf.Tensor],
  *,
  seed: tf.Tensor,
  constants: collections.OrderedDict[str, tf.Tensor] | None = None,
) -> protocols.Structure:
  """Returns the `full_gradient` of what a participant's training minimises."""
  return full_gradient(
    training.model,
    training.objective,
    weights,
    training.selection.of(examples),
    batch_size=training.plan.batch_size,
    seed=seed,
    with_labelled=training.plan.labelled_batch_size is not None,
    constants=constants,
  )
