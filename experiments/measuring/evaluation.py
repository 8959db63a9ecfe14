"""How the model of a round classifies test and validation split."""

import dataclasses
import functools
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from sklearn import metrics

# Bounds the memory of one forward pass.
_BATCH = 512
# Of the calibration error.
_BINS = 15
_VALIDATION = 'validation_accuracy'


@dataclasses.dataclass
class FinishedRound:
  """A round that is done, with the row of metrics that grows for it.

  Attributes:
    number: Rounds done, this one included.
    state: The process's state after it.
    read_weights: From such a state to the weights to evaluate.
    row: The metrics found so far, by their column in metrics.csv.
  """

  number: int
  state: Any
  read_weights: Callable[[Any], Any] | None
  row: dict[str, object] = dataclasses.field(default_factory=dict)

  @functools.cached_property
  def weights(self):
    """The `ModelWeights` to evaluate, read when first asked for."""
    return self.read_weights(self.state)

  @property
  def is_evaluated(self) -> bool:
    """Whether the row holds test metrics already."""
    return 'accuracy' in self.row


# Measures a finished round, where that is due: returns columns to add to the
# row that earlier measurements have left.
Measurement = Callable[[FinishedRound], Mapping[str, object]]
# Measures what a round begins with, where that is due: returns columns for its
# row. It takes the rounds done, the process's state, the keys of the
# participants (`client_sampling.sample_keys`), and how often participants of
# this round have been drawn before.
MeasurementBefore = Callable[
  [int, Any, Sequence[Any], int], Mapping[str, object]
]


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
  """Evaluates weights on a split, in this process, without augmentation."""

  def __init__(self, model, views, split):
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
    """Returns `accuracy` in [0, 1] and `test_loss` in nats per example."""
    return self.scores(weights).mean()

  def scores(self, weights) -> Scores:
    """Evaluates `ModelWeights` on each example of the split, in one pass."""
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
    total_rounds, rounds_per_evaluation, rounds_per_client_evaluation: Settings.
    evaluation_offset: Rounds before the first evaluation, if fewer.
    evaluate_clients: From rounds done and `ModelWeights` to the metrics of the
      test split and of each client; it then takes the place of `evaluate`.
      `None` where clients are not evaluated.
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

  It is the last validation accuracy in metrics.csv and the best one, without
  rounds of pre-training, and the test accuracy after the (first) best round.
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
  """Returns the last test loss in metrics.csv; `None` if it is not finite."""
  loss = float(table.loc[table['accuracy'].notna(), 'test_loss'].iloc[-1])
  return loss if math.isfinite(loss) else None


def batches(split) -> list[tuple[tf.Tensor, tf.Tensor]]:
  """Returns the examples and the `int32` labels of a split, in its order."""
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


@dataclasses.dataclass(frozen=True, eq=False)
class ClassFigures:
  """What a model says of the N examples of a split, beside the truth.

  Attributes:
    scores: Of the examples.
    labels: `int32 [N]`, their classes.
    class_names: The d names of the classes.
  """

  scores: Scores
  labels: np.ndarray
  class_names: tuple[str, ...]

  def summary(self) -> dict[str, float]:
    """Returns `macro_f1`, `balanced_accuracy` and `calibration_error`.

    The first two are means over the classes that have examples, of F1 and of
    recall. A class that is predicted and has none does not count as one.
    """
    labels, predicted = self.labels, self.scores.predicted
    of_classes = {'labels': np.unique(labels), 'average': 'macro'}
    return {
      'macro_f1': float(
        metrics.f1_score(labels, predicted, zero_division=0, **of_classes)
      ),
      # `balanced_accuracy_score` is the same, and warns where a class is
      # predicted of which there is no example.
      'balanced_accuracy': float(
        metrics.recall_score(labels, predicted, **of_classes)
      ),
      'calibration_error': calibration_error(
        self.scores.correct, self.scores.confidences
      ),
    }

  def confusion(self) -> pd.DataFrame:
    """Returns numbers of examples; rows are true classes, columns predicted."""
    counts = metrics.confusion_matrix(
      self.labels,
      self.scores.predicted,
      labels=np.arange(len(self.class_names)),
    )
    return pd.DataFrame(counts, self.class_names, self.class_names)


def calibration_error(correct: np.ndarray, confidences: np.ndarray) -> float:
  """Returns the expected calibration error of Guo et al. (2017), in [0, 1].

  Examples lie in 15 bins of equal width by their largest probability,
  `float [N]` in (0, 1]. The error is the mean over the examples of the distance
  between accuracy and mean confidence in an example's bin; NaN where a
  confidence is.
  """
  confidences = confidences.astype(np.float64)
  if np.isnan(confidences).any():
    return float('nan')
  # A bin is open below and closed above; rounding may lead beyond 1.
  bins = np.minimum(np.ceil(confidences * _BINS), _BINS).astype(np.int64) - 1
  distances = np.bincount(bins, weights=correct - confidences)
  return float(np.abs(distances).sum() / len(confidences))
