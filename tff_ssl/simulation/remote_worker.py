"""A worker on another machine: reached, watched and given up.

TFF itself waits for ever for a worker that does not answer. Here a call that
takes long is accompanied by small ones, and given up when those stay without
an answer too: the worker's process hangs, or its machine is gone.
"""

import functools
import sys
import threading
import time

import grpc
import tensorflow_federated as tff

from tff_ssl.simulation import channels
from tff_ssl.simulation.divided_context import WorkerLost

_CHANNEL_OPTIONS = (
  *channels.OPTIONS,
  # gRPC's own two minutes would hide a worker that is there again.
  ('grpc.max_reconnect_backoff_ms', 2000),
)
_MAX_REJECTIONS = 3


class _ChannelError(WorkerLost, grpc.RpcError):
  """A `WorkerLost` that TFF, when it disposes of executors, passes over."""


class RemoteWorker:
  """The channel to a worker that someone else has started.

  It is the channel that TFF's stub gets, with the two methods that the stub
  uses, so that every call can be watched.

  Attributes:
    address: `host:port`.
    stub: What TFF's executors send their requests to.
  """

  def __init__(self, address: str, timeout_s: float):
    """Opens the channel, without waiting for the worker.

    Args:
      address: `host:port`.
      timeout_s: Seconds without an answer after which the worker is lost.
    """
    self.address = address
    self._timeout_s = timeout_s
    self._pause_s = min(channels.PING_EVERY_S, timeout_s)
    self._loss = None
    self._channel = grpc.insecure_channel(address, _CHANNEL_OPTIONS)
    self._pings = channels.Pings(self._channel)
    self.stub = tff.framework.RemoteExecutorGrpcStub(self)

  def wait_until_ready(self) -> None:
    """Waits for the worker.

    Raises:
      RuntimeError: If it does not answer in time.
    """
    if not self._pings.is_answered(self._timeout_s, wait_for_ready=True):
      raise RuntimeError(
        f'The TFF worker at {self.address} does not answer within '
        f'{self._timeout_s:g} s: check the address, that worker_binary runs '
        'there, and the firewalls between.'
      )

  def is_available(self) -> bool:
    """Returns whether it can be used; asks one that was lost now and then."""
    if self._loss is not None and time.monotonic() > self._ask_again:
      self._ask_again = time.monotonic() + self._timeout_s
      if self._pings.is_answered(channels.SHORT_S):
        self._loss = None
    return self._loss is None

  def lose(self, why: str) -> WorkerLost:
    """Marks the worker as lost.

    Args:
      why: What it did.

    Returns:
      The error to raise.
    """
    self._ask_again = time.monotonic() + self._pause_s
    self._loss = f'The TFF worker at {self.address} {why}'
    return _ChannelError(self._loss)

  def subscribe(self, *arguments, **options) -> None:
    """As of `grpc.Channel`."""
    self._channel.subscribe(*arguments, **options)

  def unary_unary(self, *arguments, **options):
    """As of `grpc.Channel`; the callable raises `WorkerLost`."""
    method = self._channel.unary_unary(*arguments, **options)
    return functools.partial(self._call, method)

  def _call(self, method, request):
    if self._loss is not None:
      raise _ChannelError(self._loss)
    call = method.future(request)
    while True:
      try:
        return call.result(self._pause_s)
      except grpc.FutureTimeoutError:
        if not self._pings.is_answered(self._timeout_s) and not call.done():
          call.cancel()
          raise self.lose(
            f'has not answered for {self._timeout_s:g} s'
          ) from None
      except grpc.RpcError as error:
        is_gone = error.code() == grpc.StatusCode.UNAVAILABLE
        # Some ends of a connection have other codes.
        if is_gone or not self._pings.is_answered(channels.SHORT_S):
          raise self.lose('closed the connection') from error
        raise


class RemoteFactory(tff.framework.ExecutorFactory):
  """Executors on one remote worker."""

  def __init__(self, worker: RemoteWorker, default_num_clients: int):
    """Initializes the factory.

    Args:
      worker: The worker.
      default_num_clients: Number of clients where the arguments do not tell.
    """
    self._worker = worker
    self.failures_in_a_row = 0
    # Calls come from several threads.
    self._lock = threading.Lock()
    self._executors = executors_on(worker.stub, default_num_clients)

  def create_executor(self, cardinalities):
    """Returns an executor for numbers of clients; as TFF's base class."""
    with self._lock:
      return self._executors.create_executor(cardinalities)

  def clean_up_executor(self, cardinalities) -> None:
    """Forgets an executor after a failed call; as TFF's base class."""
    with self._lock:
      # TFF calls this while it handles the exception. A worker that was started
      # again rejects executors of its predecessor, and then takes new ones.
      self._executors.clean_up_executor(cardinalities)
      if isinstance(sys.exc_info()[1], tff.framework.RetryableError):
        self.failures_in_a_row += 1
        if self.failures_in_a_row > _MAX_REJECTIONS:
          self.failures_in_a_row = 0
          raise self._worker.lose('runs but rejects calls')


def executors_on(stub, default_num_clients: int):
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
