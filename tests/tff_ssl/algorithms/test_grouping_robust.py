"""A federation that collapses under plain CRL by construction, and does not."""

import numpy as np
import pytest
from comparing import assert_close, assert_same

from tff_ssl import metrics, optimizers, testing
from tff_ssl.algorithms import PROCESSES

pytestmark = pytest.mark.usefixtures('tff_context')

_ROUNDS = 10
# A model that has hardly begun labels what it gives a probability of a half,
# and a client trains on that for many steps.
_CONFIRMING = {'threshold': 0.5, 'local_epochs': None, 'local_steps': 30}
_SERVER = {'server_steps': 10, 'server_weight': 1.0, 'num_groups': 2}


def _train(name, **changes):
  """Returns the accuracy and the share of right labels of the last rounds."""
  problem = testing.TinyProblem(PROCESSES[name])
  process = problem.build(**{**_CONFIRMING, **_SERVER, **changes})
  state, right, labelled = process.initialize(), [], []
  for round_num in range(_ROUNDS):
    state, output = process.next(state, problem.clients(round_num))
    train = output['client_work']['train']
    right.append(train['pseudo_label_accuracy'])
    labelled.append(train['mask_rate'])
  accuracy = problem.accuracy(process.get_model_weights(state))
  return accuracy, np.mean(right[-3:]), np.mean(labelled[-3:])


@pytest.mark.parts
def test_it_learns_where_clients_that_label_for_themselves_collapse():
  accuracy, right, labelled = _train('grouping')
  assert accuracy < 0.6
  assert labelled > 0.9 and right < 0.35
  robust, robust_right, robust_labelled = _train(
    'grouping_robust', min_confidence=0.5
  )
  assert robust > 0.75
  assert robust_labelled > 0.7 and robust_right > 0.7


@pytest.mark.dear
def test_it_is_grouping_with_options():
  problems = {
    name: testing.TinyProblem(PROCESSES[name])
    for name in ('grouping_robust', 'grouping')
  }
  plain = problems['grouping'].build(
    pseudo_label_rule='self_adaptive',
    min_confidence=0.2,
    teacher='received',
    server_order='after',
    server_weight=1.0,
    ema_decay=0.9,
    client_momentum='mean',
  )
  robust = problems['grouping_robust'].build(server_weight=1.0)
  found = []
  for process in (plain, robust):
    state = process.initialize()
    for round_num in range(2):
      state = process.next(state, problems['grouping'].clients(round_num)).state
    found.append(process.get_model_weights(state).trainable)
  assert_same(*found)


def test_its_defaults_are_those_of_its_page():
  spec = PROCESSES['grouping_robust']
  assert spec.default_of('pseudo_label_rule') == 'self_adaptive'
  assert spec.default_of('min_confidence') == 0.5
  assert spec.default_of('ema_decay') == 0.9
  assert spec.default_of('client_momentum') == 'mean'
  assert spec.objective.keywords['teacher'] == 'received'


@pytest.mark.dear
def test_clients_and_server_decay_weights_unless_told_otherwise():
  problem = testing.TinyProblem(PROCESSES['grouping_robust'])
  sgd = optimizers.build_nesterov_sgd(0.03, weight_decay=5e-4)
  found = []
  for optimizer in (None, sgd):
    process = problem.build(
      client_optimizer=optimizer, server_optimizer=optimizer
    )
    state = process.next(process.initialize(), problem.clients()).state
    found.append(process.get_model_weights(state).trainable)
  assert_same(*found)


@pytest.mark.parts
def test_its_gradient_diversity_is_that_of_grouping_at_the_start():
  """Averages and momenta do not change what is measured of one model."""
  changes = {'server_order': 'after', 'teacher': 'received', 'threshold': 0.1}
  measured = []
  for more in ({}, {'ema_decay': 0.9, 'global_momentum': 0.5}):
    problem = testing.TinyProblem(PROCESSES['grouping'])
    process = problem.build(**changes, **more)
    state = metrics.measured_state(
      process, process.initialize(), round_num=0, seed=0
    )
    measure = metrics.build_process_diversity(process)
    measured.append(dict(measure(state, problem.clients())))
  assert_close(*measured, rtol=1e-5)
