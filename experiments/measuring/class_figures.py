"""How a model classifies the test split, class by class."""

import dataclasses

import numpy as np
import pandas as pd
from sklearn import metrics

from experiments.measuring import evaluation

_BINS = 15


@dataclasses.dataclass(frozen=True, eq=False)
class ClassFigures:
  """What a model says of the N examples of a split, beside the truth.

  Attributes:
    scores: Of the examples.
    labels: `int32 [N]`, their classes.
    class_names: The d names of the classes.
  """

  scores: evaluation.Scores
  labels: np.ndarray
  class_names: tuple[str, ...]

  def summary(self) -> dict[str, float]:
    """Returns `macro_f1`, `balanced_accuracy` and `calibration_error`.

    The first two are means over the classes that have examples, of F1 and of
    recall. A class that is predicted and has none does not count as one.
    """
    labels, predicted = self.labels, self.scores.predicted
    return {
      'macro_f1': float(
        metrics.f1_score(
          labels,
          predicted,
          labels=np.unique(labels),
          average='macro',
          zero_division=0,
        )
      ),
      # `balanced_accuracy_score` is the same, and warns where a class is
      # predicted of which there is no example.
      'balanced_accuracy': float(
        metrics.recall_score(
          labels, predicted, labels=np.unique(labels), average='macro'
        )
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
  """Returns the expected calibration error of Guo et al. (2017).

  Examples lie in 15 bins of equal width by their largest probability; the
  error is the mean over the examples of the distance between accuracy and mean
  confidence in an example's bin.

  Args:
    correct: `bool [N]`.
    confidences: `float [N]`, largest probabilities, in (0, 1].

  Returns:
    The error, in [0, 1]; NaN where a confidence is.
  """
  confidences = confidences.astype(np.float64)
  if np.isnan(confidences).any():
    return float('nan')
  # A bin is open below and closed above; rounding may lead beyond 1.
  bins = np.minimum(np.ceil(confidences * _BINS), _BINS).astype(np.int64) - 1
  distances = np.bincount(bins, weights=correct - confidences)
  return float(np.abs(distances).sum() / len(confidences))
