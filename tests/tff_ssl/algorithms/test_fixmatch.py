"""Central FixMatch against a loop written in numpy, and its average."""

import collections

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, assert_same

import tff_ssl
from tff_ssl.algorithms import PROCESSES
from tff_ssl.testing import tiny_problems

pytestmark = pytest.mark.usefixtures('tff_context')

_RATE, _MOMENTUM, _THRESHOLD, _DECAY = 0.5, 0.9, 0.6, 0.4
_LABELLED, _RATIO, _ROUNDS = 3, 4, 3


def _by_hand(weights, x, y):
  """One step on all labelled and all unlabelled examples; the average after."""
  labelled = y >= 0
  velocity = [np.zeros_like(w) for w in weights]
  average = weights
  passed, gradient_of = [], softmax_regression.gradient
  for n in range(_ROUNDS):
    teacher = softmax_regression.probabilities(weights, x)
    mask = (teacher.max(axis=1) >= _THRESHOLD).astype(float)
    passed.append(mask.mean())
    gradient = [
      a + b
      for a, b in zip(
        gradient_of(weights, x[labelled], y[labelled]),
        gradient_of(weights, x + 1, teacher.argmax(axis=1), mask),
        strict=True,
      )
    ]
    velocity = [
      _MOMENTUM * v + g for v, g in zip(velocity, gradient, strict=True)
    ]
    weights = [w - _RATE * v for w, v in zip(weights, velocity, strict=True)]
    share = min(_DECAY, (1 + n) / (10 + n))
    average = [
      share * a + (1 - share) * w for a, w in zip(average, weights, strict=True)
    ]
  assert min(passed) > 0 and min(passed) < 1
  return average


@pytest.mark.dear
def test_three_steps_by_hand():
  rng = np.random.default_rng(0)
  size = _LABELLED * _RATIO
  x = np.float32(rng.normal(size=(size, 4)))
  y = np.full(size, -1, np.int32)
  y[2 : 2 + _LABELLED] = [0, 2, 1]
  model = federations.model(4, 3)
  process = tff_ssl.build_fixmatch(
    model,
    data_spec=collections.OrderedDict(
      x=tf.TensorSpec([None, 4]), y=tf.TensorSpec([None], tf.int32)
    ),
    views=federations.ShiftedViews(),
    unlabelled_ratio=_RATIO,
    client_objective=tff_ssl.SemiSupervised(
      federations.ShiftedViews(), _THRESHOLD
    ),
    client_training=tff_ssl.TrainingPlan(
      optimizer=tff.learning.optimizers.build_sgdm(_RATE, _MOMENTUM),
      batch_size=_LABELLED,
      steps=1,
    ),
    wiring=tff_ssl.Wiring(seed=5, ema_decay=_DECAY),
  )
  data = tf.data.Dataset.from_tensors(collections.OrderedDict(x=x, y=y))
  state = process.initialize()
  initial = process.get_model_weights(state).trainable
  found = federations.trained(process, [data], _ROUNDS, state)
  expected = _by_hand([np.float64(w) for w in initial], np.float64(x), y)
  assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_average_is_0999_of_each_step():
  spec = PROCESSES['fixmatch']
  assert spec.default_of('ema_decay') == pytest.approx(0.98412, abs=1e-5)
  assert spec.default_of('unlabelled_ratio') == 7
  assert spec.derive({'local_steps': 4}, {}) == {'ema_decay': 0.996006}
  assert spec.derive({'local_epochs': 1}, {}) == {}


@pytest.mark.dear
def test_the_client_decays_weights_unless_told_otherwise():
  """By 5e-4, as its flag (FixMatch, Section 4)."""
  assert PROCESSES['fixmatch'].defaults['weight_decay'] == 5e-4
  problem = tiny_problems.TinyProblem(PROCESSES['fixmatch'])
  sgd = tff_ssl.optimizers.build_nesterov_sgd(0.03, weight_decay=5e-4)
  found = []
  for optimizer in (None, sgd):
    process = problem.build(client_optimizer=optimizer)
    found.append(federations.trained(process, problem.clients(), 1))
  assert_same(*found)


@pytest.mark.parametrize(
  'changes, message',
  [
    (
      {
        'client_training': tff_ssl.TrainingPlan(
          batch_size=4, labelled_batch_size=2
        )
      },
      'labelled_batch_size=2: give batch_',
    ),
    (
      {'client_training': tff_ssl.TrainingPlan(client_momentum='slot')},
      "client_momentum='slot' has no effect",
    ),
  ],
)
def test_what_is_fixed_is_no_choice(changes, message):
  problem = tiny_problems.TinyProblem(PROCESSES['fixmatch'])
  with pytest.raises(ValueError, match=message):
    problem.build(**changes)
