"""Labels that a client gives all its examples at once, by a fixed model."""

from typing import NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols, randomness
from tff_ssl.models import functional
from tff_ssl.templates import prediction

# Examples of one forward pass.
_PREDICTED = 256


class PseudoLabels(NamedTuple):
  """Labels of n examples.

  Attributes:
    labels: `int32 [n]`, the most probable classes.
    confident: `float32 [n]`, 1 where the probability of that class passes the
      threshold, otherwise 0.
    passes: `float32 [2]`, what the labels cost; see
      `prediction.Predictor.passes`.
  """

  labels: tf.Tensor
  confident: tf.Tensor
  passes: tf.Tensor


def label(
  model: functional.FunctionalModel,
  weights: tff.learning.models.ModelWeights,
  x: tf.Tensor,
  *,
  views: protocols.Views,
  view: str,
  threshold: float,
  seed: tf.Tensor,
) -> PseudoLabels:
  """Labels examples with a model at inference.

  Args:
    model: The `FunctionalModel`.
    weights: `ModelWeights` of tensors.
    x: Inputs `[n, ...]` as the views take them.
    views: Augmentation.
    view: The view that the model sees, 'plain' or 'weak'.
    threshold: tau; a probability passes that is at least this.
    seed: `int32 [2]`, the participant's, for the weak view.
  """
  if view == 'plain':
    x = views.plain(x)
  else:
    own_seed = randomness.fold_in(seed, randomness.Purpose.PSEUDO_LABEL)
    x = views.weak(x, own_seed)
  found = prediction.probabilities(model, weights, x, _PREDICTED)
  return PseudoLabels(
    tf.argmax(found, axis=1, output_type=tf.int32),
    tf.cast(tf.reduce_max(found, axis=1) >= threshold, tf.float32),
    prediction.forward_passes(x),
  )
