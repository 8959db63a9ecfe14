"""Figures of classes against scikit-learn's and against sums by hand."""

import math
import warnings

import numpy as np
import pytest
from sklearn import metrics

from experiments.measuring import evaluation


def figures_of(labels, predicted, confidences=None, num_classes=4):
  labels, predicted = np.array(labels), np.array(predicted)
  if confidences is None:
    confidences = np.full(len(labels), 0.5)
  scores = evaluation.Scores(
    labels == predicted, np.zeros(len(labels)), predicted, np.array(confidences)
  )
  names = tuple('abcdefgh'[:num_classes])
  return evaluation.ClassFigures(scores, labels, names)


def test_figures_by_hand():
  """Three of four a are found, and the one b; nobody is or becomes a c."""
  found = figures_of([0, 0, 0, 0, 1], [0, 0, 0, 1, 1], num_classes=3)
  assert found.summary() == {
    # 2 TP / (2 TP + FP + FN).
    'macro_f1': pytest.approx((6 / 7 + 2 / 3) / 2),
    'balanced_accuracy': pytest.approx((3 / 4 + 1) / 2),
    'calibration_error': pytest.approx(4 / 5 - 1 / 2),
  }
  table = found.confusion()
  assert table.to_numpy().tolist() == [[3, 1, 0], [0, 1, 0], [0, 0, 0]]
  assert list(table.index) == list(table.columns) == ['a', 'b', 'c']


def test_they_are_those_of_scikit_learn():
  rng = np.random.default_rng(0)
  labels, predicted = rng.integers(0, 4, (2, 200))
  summary = figures_of(labels, predicted).summary()
  assert summary['macro_f1'] == pytest.approx(
    metrics.f1_score(labels, predicted, average='macro')
  )
  assert summary['balanced_accuracy'] == pytest.approx(
    metrics.balanced_accuracy_score(labels, predicted)
  )


def test_a_class_without_examples_is_predicted_without_a_warning():
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    summary = figures_of([0, 0, 1, 1], [0, 3, 1, 1]).summary()
  assert summary['balanced_accuracy'] == 0.75
  assert summary['macro_f1'] == pytest.approx((2 / 3 + 1) / 2)


def test_calibration_error_by_hand():
  """Bins are (9/15, 10/15], twice, and (14/15, 1]."""
  correct = np.array([True, False, True, True])
  confidences = np.array([0.61, 10 / 15, 0.95, 1.0])
  # One of two right, of which 0.638 is said; two of two, and 0.975 is said.
  first, last = (0.61 + 10 / 15) / 2 - 0.5, 1 - 0.975
  assert evaluation.calibration_error(correct, confidences) == (
    pytest.approx((2 * first + 2 * last) / 4)
  )


def test_calibration_error_against_a_loop_over_the_bins():
  rng = np.random.default_rng(1)
  confidences = rng.uniform(0.1, 1, 1000).astype(np.float32)
  correct = rng.random(1000) < confidences**2
  error = 0.0
  for place in range(15):
    inside = (confidences > place / 15) & (confidences <= (place + 1) / 15)
    if inside.any():
      gap = correct[inside].mean() - confidences[inside].mean(dtype=np.float64)
      error += inside.mean() * abs(gap)
  found = evaluation.calibration_error(correct, confidences)
  assert found == pytest.approx(error) and 0.1 < found < 0.3


def test_what_is_sure_and_right_is_calibrated():
  # A softmax may be rounded to a little more than 1.
  sure = np.array([1, 1 + 1e-7], np.float32)
  found = evaluation.calibration_error(np.array([True, True]), sure)
  assert found == pytest.approx(0, abs=1e-6)


def test_a_model_that_overflowed_has_no_calibration():
  found = figures_of([0, 1], [0, 0], [0.5, np.nan]).summary()
  assert math.isnan(found['calibration_error'])
  assert found['balanced_accuracy'] == 0.5
