"""Accuracy and loss of a model on test and validation split."""

import dataclasses
import hashlib
import math

import numpy as np
import pandas as pd
import tensorflow as tf

# Bounds the memory of one forward pass.
_BATCH = 512
_VALIDATION = 'validation_accuracy'


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
  """How a model did on each of N examples.

  Attributes:
    correct: `bool [N]`, whether the likeliest class is the label.
    losses: `float32 [N]`, cross-entropy in nats.
  """

  correct: np.ndarray
  losses: np.ndarray

  def mean(self) -> dict[str, float]:
    """Returns `accuracy` in [0, 1] and `test_loss` in nats per example."""
    return {
      'accuracy': float(self.correct.mean()),
      'test_loss': float(self.losses.mean(dtype=np.float64)),
    }


class Evaluator:
  """Evaluates weights on a test split, in this process, without
  augmentation."""

  def __init__(self, model, views, split):
    """Prepares the evaluation.

    Args:
      model: A `FunctionalModel`.
      views: Gives `plain`, the normalised images.
      split: `datasets.sources.source.Split`.
    """
    self._batches = batches(split)

    @tf.function
    def score(trainable, non_trainable, images, labels):
      logits, _ = model.predict(
        trainable, non_trainable, views.plain(images), training=False
      )
      logits = tf.cast(logits, tf.float32)
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
      predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
      return tf.equal(predicted, labels), losses

    self._score = score

  def __call__(self, weights) -> dict[str, float]:
    """Returns `accuracy` in [0, 1] and `test_loss` in nats per example.

    Args:
      weights: `tff.learning.models.ModelWeights` of arrays.
    """
    return self.scores(weights).mean()

  def scores(self, weights) -> Scores:
    """Evaluates each example of the split, in one pass.

    Args:
      weights: `tff.learning.models.ModelWeights` of arrays.
    """
    trainable = [tf.constant(value) for value in weights.trainable]
    non_trainable = [tf.constant(value) for value in weights.non_trainable]
    correct, losses = zip(
      *(
        self._score(trainable, non_trainable, images, labels)
        for images, labels in self._batches
      ),
      strict=True,
    )
    return Scores(np.concatenate(correct), np.concatenate(losses))


def validator(model, views, split):
  """Returns what evaluates weights on a validation split.

  Args:
    model: A `FunctionalModel`.
    views: Gives `plain`, the normalised images.
    split: `datasets.sources.source.Split`, or `None` where there is none.

  Returns:
    `(ModelWeights) -> dict` of `validation_accuracy` in [0, 1], or `None`
    without a split.
  """
  if split is None:
    return None
  evaluator = Evaluator(model, views, split)
  return lambda weights: {_VALIDATION: evaluator(weights)['accuracy']}


def validation_figures(
  table: pd.DataFrame, pretraining_rounds: int = 0
) -> dict[str, float]:
  """Returns what summary.json has of the validation split, if there is one.

  Args:
    table: metrics.csv.
    pretraining_rounds: Rounds at the beginning that do not count.

  Returns:
    `validation_accuracy`, the last one, `best_validation_accuracy`, and
    `accuracy_at_best_validation`, the test accuracy after the (first) round of
    the best one, or nothing.
  """
  if _VALIDATION not in table:
    return {}
  counts = table['round'] > pretraining_rounds
  accuracy = table.loc[counts, _VALIDATION].dropna()
  return {
    _VALIDATION: float(accuracy.iloc[-1]),
    f'best_{_VALIDATION}': float(accuracy.max()),
    'accuracy_at_best_validation': float(
      table.loc[accuracy.idxmax(), 'accuracy']
    ),
  }


def last_test_loss(table: pd.DataFrame) -> float | None:
  """Returns the last test loss in nats; `None` where it is no finite number.

  Args:
    table: metrics.csv.
  """
  loss = float(table.loc[table['accuracy'].notna(), 'test_loss'].iloc[-1])
  return loss if math.isfinite(loss) else None


def batches(split) -> list[tuple[tf.Tensor, tf.Tensor]]:
  """Returns the images and the `int32` labels of a split, in its order.

  Args:
    split: `datasets.sources.source.Split`.
  """
  return [
    (
      tf.constant(split.images[start : start + _BATCH]),
      tf.constant(split.labels[start : start + _BATCH], tf.int32),
    )
    for start in range(0, len(split.labels), _BATCH)
  ]


def weights_sha256(weights) -> str:
  """Returns the SHA-256 of all weights' bytes, trainable ones first."""
  digest = hashlib.sha256()
  for value in [*weights.trainable, *weights.non_trainable]:
    digest.update(np.ascontiguousarray(value).tobytes())
  return digest.hexdigest()
