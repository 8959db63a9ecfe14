"""Every client is counted once, whichever worker is lost, and when.

One real worker stands behind all members: who computes is what is tested, not
where.
"""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.simulation.divided_context import (
  DividedContext,
  Member,
  WorkerLost,
)

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


class Worker(tff.framework.SyncContext):
  """A context that records its calls and is lost in some of them."""

  def __init__(self, context, lost_in=(), available=True):
    self.calls = []
    self.is_available = lambda: available and not self._is_lost
    self._context = context
    self._lost_in = lost_in
    self._is_lost = False

  def invoke(self, comp, arg):
    self.calls.append(time.monotonic())
    result = self._context.invoke(comp, arg)
    if len(self.calls) in self._lost_in:
      self._is_lost = True
      raise WorkerLost(f'lost in call {len(self.calls)}')
    return result


def divide(*members):
  return DividedContext(
    [Member(str(i), m, m.is_available) for i, m in enumerate(members)]
  )


def run(context, comp, *arguments):
  with tff.framework.get_context_stack().install(context):
    return comp(*arguments)


@pytest.fixture
def context_of_worker(tff_context):
  """The context of a living worker: other modules may have replaced it."""
  return tff.framework.get_context_stack().current


@pytest.mark.parametrize('clients', [1, 2, 3, 7])
@pytest.mark.parametrize('size', [1, 2, 3])
def test_a_step_equals_numpy(context_of_worker, clients, size):
  values = np.arange(clients, dtype=np.float32) ** 2
  context = divide(*(Worker(context_of_worker) for _ in range(size)))
  total, mean = run(context, step, 5.0, list(values))
  assert total == 2 * (5 * clients + values.sum())
  assert mean == pytest.approx(values.mean(), rel=1e-6)


def test_no_clients(context_of_worker):
  context = divide(Worker(context_of_worker), Worker(context_of_worker))
  total, _ = run(context, step, 5.0, [])
  assert total == 0


@pytest.mark.parametrize('lost', [0, 1])
@pytest.mark.parametrize('call', [1, 2, 3])
def test_a_lost_part_is_computed_by_another(
  context_of_worker, lost, call, caplog
):
  """Calls of the first worker: its part, the merging, the server's work."""
  members = [Worker(context_of_worker), Worker(context_of_worker)]
  members[lost] = Worker(context_of_worker, lost_in=(call,))
  total, mean = run(divide(*members), step, 1.0, [1.0, 2.0, 4.0])
  assert (total, mean) == (2 * (3 + 7), pytest.approx(7 / 3))
  is_reached = lost == 0 or call == 1
  assert ('others take over' in caplog.text) == is_reached


def test_losses_do_not_change_the_sum_of_floats(context_of_worker):
  """The cut of the clients and the order of merging stay."""
  values = list(np.float32([1e8, 1.0, -1e8, 3.0, 1e-3]))
  whole = run(
    divide(*(Worker(context_of_worker) for _ in range(3))), step, 0.0, values
  )
  fewer = divide(
    Worker(context_of_worker, lost_in=(1,)),
    Worker(context_of_worker, available=False),
    Worker(context_of_worker),
  )
  assert run(fewer, step, 0.0, values) == whole


def test_none_left(context_of_worker):
  members = (Worker(context_of_worker, lost_in=(1,)) for _ in range(2))
  with pytest.raises(RuntimeError, match='No TFF worker is left: lost in .*;'):
    run(divide(*members), step, 1.0, [1.0, 2.0])


def test_an_error_of_a_computation_is_no_loss(context_of_worker):
  @tff.tensorflow.computation(np.float32)
  def fail(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 0.0)]):
      return tf.identity(x)

  @tff.federated_computation(_VALUES)
  def fail_everywhere(values):
    return tff.federated_sum(tff.federated_map(fail, values))

  members = [Worker(context_of_worker), Worker(context_of_worker)]
  with pytest.raises(Exception, match='assert'):
    run(divide(*members), fail_everywhere, [1.0, 2.0])
  assert [len(member.calls) for member in members] == [1, 1]


def test_what_is_not_divided_runs_on_one_worker(context_of_worker):
  members = [Worker(context_of_worker), Worker(context_of_worker)]
  context = divide(*members)
  assert run(context, double, 3.0) == 6
  at_clients = tff.federated_computation(
    lambda values: tff.federated_map(double, values), _VALUES
  )
  assert run(context, at_clients, [1.0, 2.0]) == [2, 4]
  assert [len(member.calls) for member in members] == [2, 0]


def test_dependent_aggregations_are_refused(context_of_worker):
  @tff.federated_computation(_VALUES)
  def twice(values):
    total = tff.federated_broadcast(tff.federated_sum(values))
    return tff.federated_sum(total)

  with pytest.raises(ValueError, match='cannot be divided.*: use one worker'):
    run(
      divide(Worker(context_of_worker), Worker(context_of_worker)),
      twice,
      [1.0, 2.0],
    )


def test_parts_are_computed_side_by_side(context_of_worker):
  """Each part waits for the other: in turns they would never meet."""
  meeting = threading.Barrier(2, timeout=30)

  class Meeting(Worker):
    def invoke(self, comp, arg):
      if not self.calls:
        self.calls.append('met')
        meeting.wait()
      return super().invoke(comp, arg)

  context = divide(Meeting(context_of_worker), Meeting(context_of_worker))
  total, _ = run(context, step, 0.0, [1.0, 2.0])
  assert total == 6


def test_run_on_each_names_the_one_that_fails(context_of_worker):
  members = [Worker(context_of_worker), Worker(context_of_worker, lost_in=(2,))]
  context = divide(*members)
  comp = tff.tensorflow.computation(lambda: tf.constant(1))
  context.run_on_each(comp)
  with pytest.raises(RuntimeError, match='1: lost in call 2'):
    context.run_on_each(comp)
  assert [len(member.calls) for member in members] == [2, 2]
