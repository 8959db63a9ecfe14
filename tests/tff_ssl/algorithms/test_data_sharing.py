"""DataSharing is the lower bound first, and then FedAvg, to the bit."""

import numpy as np
import pytest

from tff_ssl.algorithms import PROCESSES
from tff_ssl.testing import tiny_problems

pytestmark = pytest.mark.usefixtures('tff_context')


def _weights(problem, rounds):
  process = problem.process
  state = process.initialize()
  found = []
  for round_num in range(rounds):
    output = process.next(state, problem.clients(round_num))
    state = output.state
    found.append(process.get_model_weights(state).trainable)
  return found, output.metrics


def _problem(name, **arguments):
  return tiny_problems.TinyProblem(PROCESSES[name], arguments)


def _assert_equal(found, expected):
  for ours, theirs in zip(found, expected, strict=True):
    for a, b in zip(ours, theirs, strict=True):
      np.testing.assert_array_equal(a, b)


def test_the_first_rounds_are_those_of_the_server_alone():
  problem = _problem('data_sharing', server_warmup_rounds=2)
  found, metrics = _weights(problem, 2)
  alone = _problem('server_only')
  expected, _ = _weights(alone, 2)
  _assert_equal(found, expected)
  assert np.isfinite(metrics['finalizer']['server']['loss'])
  assert np.isnan(metrics['client_work']['train']['loss'])


def test_the_others_are_fedavg():
  problem = _problem('data_sharing', server_warmup_rounds=0)
  found, metrics = _weights(problem, 2)
  plain = _problem('fedavg')
  expected, _ = _weights(plain, 2)
  _assert_equal(found, expected)
  assert np.isnan(metrics['finalizer']['server']['loss'])


def test_the_average_begins_where_the_server_ended():
  """One round of each: FedAvg's second round from the server's weights."""
  problem = _problem('data_sharing', server_warmup_rounds=1)
  (first, second), _ = _weights(problem, 2)
  plain = _problem('fedavg')
  state = plain.process.next(plain.process.initialize(), plain.clients(0)).state
  weights = plain.process.get_model_weights(state)
  state = plain.process.set_model_weights(
    state,
    type(weights)([np.asarray(w) for w in first], weights.non_trainable),
  )
  state = plain.process.next(state, plain.clients(1)).state
  _assert_equal([second], [plain.process.get_model_weights(state).trainable])
