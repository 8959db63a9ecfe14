"""Accuracy and loss of a model on test and validation split."""

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable
from concurrent import futures
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from experiments.measuring.finished_round import FinishedRound

# Bounds the memory of one forward pass.
_BATCH = 512
_VALIDATION = 'validation_accuracy'


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
  """How well a model classifies each of N examples.

  Attributes:
    correct: `bool [N]`, whether the most probable class is the label.
    losses: `float32 [N]`, cross-entropy in nats.
    predicted: `int32 [N]`, the most probable class.
    confidences: `float32 [N]`, its probability.
  """

  correct: np.ndarray
  losses: np.ndarray
  predicted: np.ndarray
  confidences: np.ndarray

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

    @tf.function(autograph=False)
    def score(trainable, non_trainable, images, labels):
      logits, _ = model.predict(
        trainable, non_trainable, views.plain(images), training=False
      )
      logits = tf.cast(logits, tf.float32)
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
      predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
      confidences = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
      return tf.equal(predicted, labels), losses, predicted, confidences

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

    def score(batch):
      return self._score(trainable, non_trainable, *batch)

    # An op of TensorFlow has few threads, since clients are computed side by
    # side; so are batches.
    with futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
      parts = zip(*threads.map(score, self._batches), strict=True)
      return Scores(*map(np.concatenate, parts))


@dataclasses.dataclass(frozen=True)
class TestMeasurement:
  """Measures the test split, and each client where that is due.

  The last round is always measured, per client too where clients are evaluated.

  Attributes:
    evaluate: From `ModelWeights` to the metrics of the test split.
    total_rounds: Rounds of the run.
    rounds_per_evaluation: Rounds between evaluations.
    evaluation_offset: Rounds before the first one, if fewer.
    evaluate_clients: From rounds done and `ModelWeights` to the metrics of the
      test split and of each client; it then takes the place of `evaluate`.
      `None` where clients are not evaluated.
    rounds_per_client_evaluation: Rounds between evaluations of the clients.
  """

  evaluate: Callable[[Any], dict[str, float]]
  total_rounds: int
  rounds_per_evaluation: int
  evaluation_offset: int = 0
  evaluate_clients: Callable[[int, Any], dict[str, float]] | None = None
  rounds_per_client_evaluation: int | None = None

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Returns the test metrics that are due after a round, or nothing."""
    number, is_last = finished.number, finished.number == self.total_rounds
    if self.evaluate_clients is not None and (
      is_last or number % self.rounds_per_client_evaluation == 0
    ):
      return self.evaluate_clients(number, finished.weights)
    since_offset = number - self.evaluation_offset
    if is_last or since_offset % self.rounds_per_evaluation == 0:
      return self.evaluate(finished.weights)
    return {}


class ValidationMeasurement:
  """Measures the validation split in the rounds that are tested."""

  def __init__(self, model, views, split):
    """Prepares the measurement.

    Args:
      model: A `FunctionalModel`.
      views: Gives `plain`, the normalised images.
      split: `datasets.sources.source.Split`.
    """
    self._evaluate = Evaluator(model, views, split)

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Returns `validation_accuracy` in [0, 1], or nothing."""
    if not finished.is_evaluated:
      return {}
    return {_VALIDATION: self._evaluate(finished.weights)['accuracy']}


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
      tf.constant(split.examples[start : start + _BATCH]),
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
