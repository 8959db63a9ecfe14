"""Every client is counted once, and parts are merged in their order."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl.simulation.divided_context import DividedContext

_VALUES = tff.FederatedType(np.float32, tff.CLIENTS)


@tff.tensorflow.computation(np.float32)
def double(value):
  return 2 * value


@tff.federated_computation(tff.FederatedType(np.float32, tff.SERVER), _VALUES)
def step(state, values):
  """A round in small: broadcast, client work, a sum, and server work."""
  state_at_clients = tff.federated_broadcast(state)
  add = tff.tensorflow.computation(lambda a, b: a + b, [np.float32, np.float32])
  total = tff.federated_sum(tff.federated_map(add, (state_at_clients, values)))
  return tff.federated_map(double, total), tff.federated_mean(values)


class Parts:
  """Computes parts on one worker, and records them."""

  def __init__(self, context, order=None):
    self.calls = []
    self._context = context
    self._order = order

  def compute(self, comp, arguments):
    self.calls.append(len(arguments))
    results = {}
    for index in self._order or range(len(arguments)):
      results[index] = self._context.invoke(comp, arguments[index])
    return [results[index] for index in range(len(arguments))]


def divide(context, num_parts, order=None):
  parts = Parts(context, order)
  return DividedContext(context, parts.compute, num_parts), parts.calls


def run(context, comp, *arguments):
  with tff.framework.get_context_stack().install(context):
    return comp(*arguments)


@pytest.fixture
def context_of_worker(tff_context):
  """The context of a living worker: other modules may have replaced it."""
  return tff.framework.get_context_stack().current


@pytest.mark.parametrize('clients', [1, 2, 3, 7])
@pytest.mark.parametrize('num_parts', [1, 2, 3])
def test_a_step_equals_numpy(context_of_worker, clients, num_parts):
  values = np.arange(clients, dtype=np.float32) ** 2
  context, calls = divide(context_of_worker, num_parts)
  total, mean = run(context, step, 5.0, list(values))
  assert total == 2 * (5 * clients + values.sum())
  assert mean == pytest.approx(values.mean(), rel=1e-6)
  assert calls == [min(num_parts, clients)]


def test_no_clients(context_of_worker):
  context, _ = divide(context_of_worker, 2)
  total, _ = run(context, step, 5.0, [])
  assert total == 0


def test_the_order_of_computing_does_not_change_the_sum_of_floats(
  context_of_worker,
):
  values = list(np.float32([1e8, 1.0, -1e8, 3.0, 1e-3]))
  whole, other = (
    run(divide(context_of_worker, 3, order)[0], step, 0.0, values)
    for order in (None, (2, 0, 1))
  )
  assert whole == other


def test_what_is_not_divided_is_computed_here(context_of_worker):
  context, calls = divide(context_of_worker, 2)
  assert run(context, double, 3.0) == 6
  at_clients = tff.federated_computation(
    lambda values: tff.federated_map(double, values), _VALUES
  )
  assert run(context, at_clients, [1.0, 2.0]) == [2, 4]
  assert not calls


def test_dependent_aggregations_are_refused(context_of_worker):
  @tff.federated_computation(_VALUES)
  def twice(values):
    total = tff.federated_broadcast(tff.federated_sum(values))
    return tff.federated_sum(total)

  with pytest.raises(ValueError, match='cannot be divided.*without a cluster'):
    run(divide(context_of_worker, 2)[0], twice, [1.0, 2.0])
