"""DataSharing is the lower bound first, and then FedAvg, to the bit."""

import numpy as np
import pytest
from comparing import assert_same

from tff_ssl.algorithms import PROCESSES
from tff_ssl.testing import tiny_problems

pytestmark = pytest.mark.usefixtures('tff_context')


def _weights(problem, rounds, state=None):
  """Returns the last state, the weights after each round, and the metrics."""
  process = problem.process
  state = process.initialize() if state is None else state
  weights, metrics = [], []
  for round_num in rounds:
    state, of_round = process.next(state, problem.clients(round_num))
    weights.append(process.get_model_weights(state))
    metrics.append(of_round)
  return state, weights, metrics


@pytest.mark.dear
def test_rounds_are_those_of_the_server_alone_and_then_fedavgs():
  """Two of each: the average begins where the server ended."""
  sharing, alone, average = (
    tiny_problems.TinyProblem(PROCESSES[name], arguments)
    for name, arguments in (
      ('data_sharing', {'server_warmup_rounds': 2}),
      ('server_only', {}),
      ('fedavg', {}),
    )
  )
  _, found, metrics = _weights(sharing, range(4))
  _, of_server, _ = _weights(alone, range(2))
  # Two rounds of its own, for the number of the round.
  state, *_ = _weights(average, range(2))
  state = average.process.set_model_weights(state, found[1])
  _, of_clients, _ = _weights(average, range(2, 4), state)
  assert_same(found, of_server + of_clients)
  server_losses = [m['finalizer']['server']['loss'] for m in metrics]
  client_losses = [m['client_work']['train']['loss'] for m in metrics]
  assert np.isnan(server_losses).tolist() == [False, False, True, True]
  assert np.isnan(client_losses).tolist() == [True, True, False, False]
