"""Rounds of FedAvg with aligned pseudo-labels against numpy."""

import collections

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close

import tff_ssl

pytestmark = pytest.mark.usefixtures('tff_context')

_RATE, _DECAY, _STRENGTH, _FLOOR, _COVERAGE = 0.5, 0.4, 4.0, 0.4, 0.9
_SIZE, _LABELLED, _ROUNDS = 12, 3, 3


def _clients():
  """Returns x and y of three clients, one of them with labels of one class."""
  rng = np.random.default_rng(3)
  for labels in ([0, 2, 2], [1, 1, 0], [1, 1, 1]):
    y = np.full(_SIZE, -1, np.int32)
    y[1 : 1 + _LABELLED] = labels
    yield np.float32(rng.normal(size=(_SIZE, 4))), y


def _aligned(q, y):
  means = q.mean(0)
  counts = np.bincount(y[y >= 0], minlength=3)
  shares = (counts + _STRENGTH * means) / (_LABELLED + _STRENGTH)
  q = q * shares / means
  noise = _LABELLED / (_LABELLED + _STRENGTH) ** 2
  repeats = ((shares**2).sum() - noise) / (1 - noise)
  holds_most = 1 / max(3 * repeats, 1) >= _COVERAGE
  return q / q.sum(1, keepdims=True), holds_most


def _by_hand(weights, clients):
  average, kept, left_out = weights, [], []
  for n in range(_ROUNDS):
    changes = []
    for x, y in clients:
      labelled = y >= 0
      q, holds_most = _aligned(softmax_regression.probabilities(weights, x), y)
      sure, of_class = q.max(1), q.mean(0)
      least = sure.mean() * of_class / of_class.max()
      mask = (sure >= least[q.argmax(1)]) & (sure >= _FLOOR)
      (kept if holds_most else left_out).append(mask.mean())
      mask &= holds_most
      gradients = (
        softmax_regression.gradient(weights, x[labelled], y[labelled]),
        softmax_regression.gradient(
          weights, x + 1, q.argmax(1), mask.astype(float)
        ),
      )
      changes.append([a + b for a, b in zip(*gradients, strict=True)])
    weights = [
      w - _RATE * sum(of_clients) / 3
      for w, *of_clients in zip(weights, *changes, strict=True)
    ]
    share = min(_DECAY, (1 + n) / (10 + n))
    average = [
      share * a + (1 - share) * w for a, w in zip(average, weights, strict=True)
    ]
  assert 0 < min(kept) < 1
  assert len(kept) == 2 * len(left_out) and min(left_out) > 0
  return average


@pytest.mark.dear
def test_rounds_by_hand():
  clients = list(_clients())
  process = tff_ssl.build_fedavg_robust(
    federations.model(4, 3),
    data_spec=collections.OrderedDict(
      x=tf.TensorSpec([None, 4]), y=tf.TensorSpec([None], tf.int32)
    ),
    views=federations.ShiftedViews(),
    client_objective=tff_ssl.AlignedLabels(
      federations.ShiftedViews(),
      prior_strength=_STRENGTH,
      min_confidence=_FLOOR,
      min_coverage=_COVERAGE,
    ),
    client_training=tff_ssl.TrainingPlan(
      optimizer=tff.learning.optimizers.build_sgdm(_RATE),
      batch_size=_SIZE,
      labelled_batch_size=_LABELLED,
      steps=1,
    ),
    wiring=tff_ssl.Wiring(seed=5, ema_decay=_DECAY),
  )
  data = [
    tf.data.Dataset.from_tensors(collections.OrderedDict(x=x, y=y))
    for x, y in clients
  ]
  state = process.initialize()
  initial = process.get_model_weights(state).trainable
  found = federations.trained(process, data, _ROUNDS, state)
  expected = _by_hand(
    [np.float64(w) for w in initial],
    [(np.float64(x), y) for x, y in clients],
  )
  assert_close(found, expected, rtol=1e-5, atol=1e-6)
