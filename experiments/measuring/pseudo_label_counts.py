"""Labels examples as clients do, and counts what comes of it.

The model that is evaluated sees the weak view, and the run's rule selects
pseudo-labels. Those of training may be others: clients make them with their own
models, FedLabel and FedMatch in the plain view. Rules that adapt to a minibatch
see batches of 512 examples here.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from datasets.sources import source
from experiments.measuring import evaluation
from experiments.measuring.finished_round import FinishedRound
from tff_ssl import randomness
from tff_ssl.objectives.maths import selection


class PseudoLabelCounts:
  """Sums, over a split, of what is counted in each batch.

  Attributes:
    num_examples: Of the split.
  """

  def __init__(
    self,
    model,
    views,
    split: source.Split,
    *,
    select,
    seed: int,
    count: Callable[..., Sequence[tf.Tensor]],
  ):
    """Prepares the counting.

    Args:
      model: A `FunctionalModel`.
      views: Gives the weak view.
      split: The examples, and their true labels.
      select: From logits to pseudo-labels and their weights, as the clients do.
      seed: The run's seed.
      count: From true labels `int32 [n]`, pseudo-labels `int32 [n]`, weights
        `float32 [n]` and the number of classes to tensors, which are added up.
    """
    self.num_examples = len(split.labels)
    self._batches = evaluation.batches(split)
    self._seed = seed

    @tf.function(autograph=False)
    def count_batch(trainable, non_trainable, images, labels, seed):
      logits, _ = model.predict(
        trainable, non_trainable, views.weak(images, seed), training=False
      )
      guesses, weights = select(logits)
      return count(labels, guesses, weights, tf.shape(logits)[-1])

    self._count = count_batch

  def __call__(self, finished: FinishedRound) -> list[np.ndarray]:
    """Returns the sums for the model after a round.

    Args:
      finished: The round.
    """
    weights = finished.weights
    trainable = [tf.constant(value) for value in weights.trainable]
    non_trainable = [tf.constant(value) for value in weights.non_trainable]
    seed = randomness.fold_in(
      randomness.server_seed(
        tf.constant(self._seed), tf.constant(finished.number)
      ),
      randomness.Purpose.MEASURE,
    )
    counts = [
      self._count(
        trainable,
        non_trainable,
        images,
        labels,
        randomness.fold_in(seed, place),
      )
      for place, (images, labels) in enumerate(self._batches)
    ]
    return [
      np.sum([part.numpy() for part in parts], axis=0)
      for parts in zip(*counts, strict=True)
    ]


def selection_of(settings):
  """Returns how the clients of a run select pseudo-labels.

  Args:
    settings: The run's settings.

  Returns:
    The function from logits to pseudo-labels and their weights; `None` where
    the process makes none that confidence decides about.
  """
  rule = settings.pseudo_label_rule or 'fixed'
  if settings.threshold is None and rule == 'fixed':
    return None
  return functools.partial(
    selection.pseudo_labels,
    threshold=settings.threshold,
    rule=rule,
    min_confidence=settings.min_confidence or 0.0,
  )


def by_class(classes, weights, num_classes) -> tf.Tensor:
  """Returns the sum of the weights of each class, `float32 [d]`.

  Args:
    classes: `int32 [n]`.
    weights: `float32 [n]`.
    num_classes: d.
  """
  return tf.math.bincount(
    classes, weights, minlength=num_classes, dtype=tf.float32
  )


def right(labels, guesses, weights) -> tf.Tensor:
  """Returns the weights of the right pseudo-labels, and 0 for the others.

  Args:
    labels: `int32 [n]`.
    guesses: `int32 [n]`.
    weights: `float32 [n]`.
  """
  return weights * tf.cast(tf.equal(guesses, labels), tf.float32)
