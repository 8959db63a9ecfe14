"""Accuracy and loss against numpy, figures of classes against scikit-learn."""

import hashlib
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import tensorflow_federated as tff
from sklearn import metrics

from datasets.sources.source import Split
from experiments.measuring import evaluation
from experiments.measuring.evaluation import FinishedRound

ModelWeights = tff.learning.models.ModelWeights


def split(num_examples):
  rng = np.random.default_rng(num_examples)
  return Split(
    rng.integers(0, 256, (num_examples, 4, 4, 1), dtype=np.uint8),
    rng.integers(0, 3, num_examples).astype(np.int32),
  )


@pytest.fixture
def evaluator_of(model, image_views):
  return lambda data: evaluation.Evaluator(model, image_views, data)


@pytest.fixture
def expected(log_probabilities):
  """Accuracy and loss by numpy."""

  def compute(data, weights):
    log_p = log_probabilities(data.examples, weights)
    rows = np.arange(len(data.labels))
    return {
      'accuracy': np.mean(log_p.argmax(axis=1) == data.labels),
      'test_loss': pytest.approx(-log_p[rows, data.labels].mean(), rel=1e-5),
    }

  return compute


# One example, less than a batch of 512, a whole number of them, and a rest.
@pytest.mark.parametrize('num_examples', [1, 100, 1024, 1100])
def test_equals_numpy_whatever_the_number_of_batches(
  model, evaluator_of, expected, num_examples
):
  data, weights = split(num_examples), model.initial_weights(3)
  assert evaluator_of(data)(weights) == expected(data, weights)


def test_scores_name_the_predicted_class_and_its_probability(
  model, evaluator_of, log_probabilities
):
  data, weights = split(600), model.initial_weights(3)
  scores = evaluator_of(data).scores(weights)
  log_p = log_probabilities(data.examples, weights)
  np.testing.assert_array_equal(scores.predicted, log_p.argmax(axis=1))
  np.testing.assert_allclose(
    scores.confidences, np.exp(log_p.max(axis=1)), rtol=1e-5
  )


def test_one_evaluator_takes_any_weights(model, evaluator_of):
  evaluator = evaluator_of(split(60))
  first, second = model.initial_weights(1), model.initial_weights(2)
  losses = [evaluator(w)['test_loss'] for w in (first, second, first)]
  assert losses[0] == losses[2] != losses[1]


def test_validation_is_of_its_own_split(model, image_views, expected):
  data, weights = split(90), model.initial_weights(3)
  validate = evaluation.ValidationMeasurement(model, image_views, data)
  right = expected(data, weights)['accuracy']
  tested, untested = (
    FinishedRound(1, weights, read_weights=lambda state: state, row=row)
    for row in ({'accuracy': 0.5}, {})
  )
  assert validate(tested) == {'validation_accuracy': right}
  assert validate(untested) == {}


def test_summary_has_the_last_and_the_best_validation():
  nan = float('nan')
  table = pd.DataFrame(
    {
      'round': [1, 2, 3, 4, 5],
      'validation_accuracy': [nan, 0.75, nan, 0.75, 0.5],
      'accuracy': [nan, 0.625, nan, 0.875, 0.25],
    }
  )
  # Of equally good rounds the first one.
  figures = {'validation_accuracy': 0.5, 'best_validation_accuracy': 0.75}
  figures['accuracy_at_best_validation'] = 0.625
  assert evaluation.validation_figures(table) == figures
  # What was before the classifier trained does not count.
  figures['accuracy_at_best_validation'] = 0.875
  assert evaluation.validation_figures(table, 2) == figures
  without = table.drop(columns='validation_accuracy')
  assert evaluation.validation_figures(without) == {}


@pytest.mark.parametrize(
  ('losses', 'last'),
  [([0.5, 0.25], 0.25), ([0.5, np.nan], None), ([0.5, np.inf], None)],
)
def test_the_last_test_loss_is_none_where_it_overflowed(losses, last):
  table = pd.DataFrame(
    {'accuracy': [0.1, np.nan, 0.1], 'test_loss': [losses[0], 9, losses[1]]}
  )
  assert evaluation.last_test_loss(table) == last


def test_digest_is_that_of_the_bytes_in_order():
  trainable = [np.arange(6, dtype=np.float32).reshape(2, 3).T, np.float32(1)]
  other = [np.array([1, -0.0], np.float32)]
  content = np.array([0, 3, 1, 4, 2, 5, 1, 1, -0.0], '<f4').tobytes()
  found = evaluation.weights_sha256(ModelWeights(trainable, other))
  assert found == hashlib.sha256(content).hexdigest()


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
