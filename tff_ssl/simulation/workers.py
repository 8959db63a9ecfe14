"""A local TFF worker that starts or says why, survives its death, and ends.

TFF computes in a child process, the `worker_binary` of its wheel, which
`build_context` and `install_context` start:

  * one that cannot start is a `RuntimeError` within a time limit, with its
    last line of stderr;
  * one that dies is started again, and TFF's own retry repeats the computation
    with the same arguments, up to `max_restarts` times in a row;
  * one that does not answer, though it runs, is killed, and then replaced
    likewise;
  * none outlives Python: it is terminated at exit, and the Linux kernel kills
    it should Python itself be killed.

For more than one machine see `tff_ssl.simulation.ray_context`.

It listens on all network interfaces without authentication (the binary has no
option for that): use it behind a firewall.
"""

import atexit
import logging
import os
import sys
import threading
from typing import Any

import tensorflow_federated as tff

# TFF's contexts pass these two, and its public interface does not name them.
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
  tensorflow_computation as _tensorflow,
)

from tff_ssl.simulation import background, secure_sums
from tff_ssl.simulation.local_worker import (
  LocalWorker,
  listening_ports,
  stop_workers,
  worker_memory_mib,
)

__all__ = [
  'LocalWorker',
  'build_context',
  'install_context',
  'listening_ports',
  'stop_workers',
  'threads_for',
  'worker_memory_mib',
]

_LOG = logging.getLogger(__name__)


class _RestartingFactory(tff.framework.ExecutorFactory):
  """Executors on one worker, which is replaced when it has died.

  TFF repeats a call whose worker is unavailable for ever, and asks this factory
  before each attempt and after each failed one.
  """

  def __init__(
    self,
    default_num_clients: int,
    max_concurrent_calls: int,
    start_timeout_s: float,
    max_restarts: int,
    threads_per_op: int,
    answer_timeout_s: float,
    use_onednn: bool,
  ):
    self._default_num_clients = default_num_clients
    self._max_concurrent_calls = max_concurrent_calls
    self._start_timeout_s = start_timeout_s
    self._threads_per_op = threads_per_op
    self._max_restarts = max_restarts
    self._answer_timeout_s = answer_timeout_s
    self._use_onednn = use_onednn
    self.failures_in_a_row = 0
    # Awaited calls come from several threads (see `BackgroundContext`).
    self._lock = threading.RLock()
    self._start()

  def _start(self) -> None:
    self._worker = LocalWorker(
      max_concurrent_calls=self._max_concurrent_calls,
      start_timeout_s=self._start_timeout_s,
      threads_per_op=self._threads_per_op,
      answer_timeout_s=self._answer_timeout_s,
      use_onednn=self._use_onednn,
    )
    # Executors of a dead worker are names that a new one does not know.
    self._executors = _executors_on(
      self._worker.stub, self._default_num_clients
    )

  def _count_failure(self, what: str) -> None:
    self.failures_in_a_row += 1
    if self.failures_in_a_row > self._max_restarts:
      self.failures_in_a_row = 0
      remedy = (
        'Find out what stops the process, or, if the machine is only busy, '
        'allow more seconds: answer_timeout_s, for a run --worker_timeout.'
        if self._worker.was_silent
        else 'If memory ran out, sample fewer clients or set '
        'max_concurrent_calls.'
      )
      raise RuntimeError(
        f'{what}; max_restarts={self._max_restarts} is used up. {remedy}'
      )

  def create_executor(self, cardinalities):
    with self._lock:
      worker = self._worker
      if worker.is_stopped:
        raise RuntimeError('The TFF worker was stopped: call install_context.')
      if not worker.has_ended():
        worker.wait_until_ready(self._start_timeout_s)
      else:
        ended = worker.describe_end()
        self._count_failure(ended)
        worker.stop()
        self._start()
        _LOG.warning(
          '%s. A new one, on port %d, repeats its computation.',
          ended,
          self._worker.port,
        )
      return self._executors.create_executor(cardinalities)

  def clean_up_executor(self, cardinalities) -> None:
    with self._lock:
      if self._worker.is_stopped:
        return
      self._executors.clean_up_executor(cardinalities)
      # TFF calls this while it handles the failed attempt's exception. A death
      # (seen up to 1 s after the connection closes) is counted when the worker
      # is replaced; a living worker would be asked again for ever.
      is_retried = isinstance(sys.exc_info()[1], tff.framework.RetryableError)
      if is_retried and not self._worker.has_ended(1.0):
        self._count_failure(
          f'The TFF worker (pid {self._worker.pid}) runs but rejects calls'
        )


def threads_for(clients_per_round: int) -> int:
  """Returns the `threads_per_op` that shares the cores among the clients.

  Args:
    clients_per_round: Clients in a round; with none all cores go to one op.
  """
  return max(1, (os.cpu_count() or 1) // max(1, clients_per_round))


def build_context(
  default_num_clients: int = 0,
  max_concurrent_calls: int = -1,
  start_timeout_s: float = 15.0,
  *,
  max_restarts: int = 3,
  threads_per_op: int = 0,
  asynchronous: bool = False,
  answer_timeout_s: float = 60.0,
  use_onednn: bool = True,
) -> tff.framework.SyncContext | tff.framework.AsyncContext:
  """Starts a worker and returns a context on it.

  Several contexts may live side by side; `stop_workers` ends their processes.

  Args:
    default_num_clients: Number of clients where the arguments do not tell.
    max_concurrent_calls: How many clients the worker computes at once; not
      positive for no limit.
    start_timeout_s: Seconds in which the worker must start, or reconnect.
    max_restarts: How often in a row the worker is replaced before a computation
      raises `RuntimeError`.
    threads_per_op: Threads of one TensorFlow op, or 0 for one per core. Clients
      are computed side by side, so that where there are at least as many of
      them as cores, 1 is faster: see `threads_for`.
    asynchronous: Whether calls return awaitables, as `tff.program` needs.
    answer_timeout_s: Seconds without an answer after which the worker is killed
      and replaced. One that computes for long does answer.
    use_onednn: Whether TensorFlow takes the kernels of oneDNN on every
      processor, which makes convolutions up to twice as fast. It must not where
      a model computes in bfloat16 on a processor without AVX512: its
      convolutions fail there. The variable TF_ENABLE_ONEDNN_OPTS goes first.

  Returns:
    The context; `tff.framework.get_context_stack().install` enters it. It
    simulates secure sums without cryptography: see `secure_sums.simulate`.

  Raises:
    ValueError: If an argument is out of range.
    RuntimeError: If the worker cannot start.
  """
  for name, value, minimum in (
    ('default_num_clients', default_num_clients, 0),
    ('max_restarts', max_restarts, 0),
    ('threads_per_op', threads_per_op, 0),
    ('start_timeout_s', start_timeout_s, 1),
    ('answer_timeout_s', answer_timeout_s, 1),
  ):
    if value < minimum:
      raise ValueError(f'{name}={value!r} must be at least {minimum}.')
  factory = _RestartingFactory(
    default_num_clients,
    max_concurrent_calls,
    start_timeout_s,
    max_restarts,
    threads_per_op,
    answer_timeout_s,
    use_onednn,
  )

  def finish(result):
    factory.failures_in_a_row = 0
    return _tensorflow.transform_result(result)

  context = tff.framework.SyncExecutionContext(
    executor_fn=factory,
    compiler_fn=_compile,
    transform_args=_tensorflow.transform_args,
    transform_result=finish,
  )
  return background.BackgroundContext(context) if asynchronous else context


def _compile(comp):
  return tff.backends.native.desugar_and_transform_to_native(
    secure_sums.simulate(comp)
  )


def _executors_on(stub, default_num_clients: int):
  """Returns a factory of executors behind one stub.

  Args:
    stub: A `tff.framework.RemoteExecutorStub`.
    default_num_clients: Number of clients where the arguments do not tell.
  """

  def create_stack(cardinalities):
    # By default the worker keeps 20 values, those of six rounds, before it
    # frees any. To free each at once would take three more calls a round.
    executor = tff.framework.RemoteExecutor(stub, dispose_batch_size=4)
    executor.set_cardinalities(
      {tff.CLIENTS: default_num_clients, **cardinalities}
    )
    return executor

  return tff.framework.ResourceManagingExecutorFactory(create_stack)


def install_context(
  **options: Any,
) -> tff.framework.SyncContext | tff.framework.AsyncContext:
  """Starts a worker and makes it TFF's default execution context.

  Stops the workers of earlier contexts. TFF has one default context per thread:
  call this in the thread that runs the computations.

  Args:
    **options: Arguments of `build_context`.

  Returns:
    The installed context.

  Raises:
    ValueError: If an argument is out of range.
    RuntimeError: If the worker cannot start.
  """
  stop_workers()
  context = build_context(**options)
  tff.framework.set_default_context(context)
  return context


class _EndedContext(tff.framework.SyncContext):
  """What is TFF's default context while Python ends."""

  def invoke(self, comp, arg):
    raise RuntimeError('Python is ending: no computation can run any more.')


@atexit.register
def _release_default_context() -> None:
  """Frees the default context while modules are still there.

  TFF's own, where nobody has replaced it, otherwise prints a traceback behind
  whatever error made Python end.
  """
  tff.framework.set_default_context(_EndedContext())
