"""Local TFF workers that start or say why, survive their death, and end.

TFF computes in a child process, the `worker_binary` of its wheel, which
`install_context` starts and puts behind the default execution context:

  * one that cannot start is a `RuntimeError` within a time limit, with its
    last line of stderr;
  * one that dies is started again, and TFF's own retry repeats the computation
    with the same arguments, up to `max_restarts` times in a row;
  * none outlives Python: it is terminated at exit, and the Linux kernel kills
    it should Python itself be killed.

It listens on all network interfaces without authentication (the binary has no
option for that): use it behind a firewall.
"""

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import portpicker
import psutil
import tensorflow_federated as tff

# TFF's contexts pass these two, and its public interface does not name them.
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
  tensorflow_computation as _tensorflow,
)

_BINARY = pathlib.Path(tff.__file__).parent / 'data' / 'worker_binary'
_CHANNEL_OPTIONS = (
  # TFF's own limit; gRPC's default of 4 MB is smaller than most models.
  ('grpc.max_receive_message_length', 2_000_000_000),
  ('grpc.max_send_message_length', 2_000_000_000),
  # With http_proxy set, gRPC would ask the proxy for this very machine.
  ('grpc.enable_http_proxy', 0),
  # The first attempt comes before the worker listens; the default waits 1 s.
  ('grpc.initial_reconnect_backoff_ms', 100),
  ('grpc.min_reconnect_backoff_ms', 100),
)
_REINSTALL = 'reinstall tensorflow-federated 0.87 for this platform'
_POLL_S = 0.02

# Runs between fork and the worker. As a program of its own it needs no Python
# between fork and exec of a process with many threads (`preexec_fn` would).
# The check of the parent closes the gap in which Python died before `prctl`.
_BIND_TO_PARENT = """
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL) != 0:  # 1: PR_SET_PDEATHSIG
  sys.exit('prctl(PR_SET_PDEATHSIG) was refused')
if os.getppid() != int(sys.argv[1]):
  sys.exit('the parent process is gone')
try:
  os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
  sys.exit(f'cannot execute {sys.argv[2]}: {error.strerror}')
"""


class LocalWorker:
  """One running worker process and the channel to it.

  The worker ends with the thread that started it: start it in the main thread,
  or in one that lives as long as the worker is needed.

  Attributes:
    pid: Process id.
    port: TCP port on which the worker listens.
    stub: What TFF's executors send their requests to.
    is_stopped: Whether `stop` was called; a death does not set it.
  """

  def __init__(
    self, *, max_concurrent_calls: int = -1, start_timeout_s: float = 15.0
  ):
    """Starts a worker and waits until it answers.

    Args:
      max_concurrent_calls: How many clients are computed at once, or -1.
      start_timeout_s: Seconds the start may take.

    Raises:
      RuntimeError: If the worker cannot start, naming the cause and remedy.
    """
    if not _BINARY.is_file():
      raise RuntimeError(f'The TFF worker {_BINARY} is missing: {_REINSTALL}.')
    self._owner = os.getpid()
    self.is_stopped = False
    self.port = portpicker.pick_unused_port()
    self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
    self._process = subprocess.Popen(
      [
        *(sys.executable, '-I', '-S', '-c', _BIND_TO_PARENT, str(self._owner)),
        str(_BINARY),
        f'--port={self.port}',
        f'--max_concurrent_computation_calls={max_concurrent_calls}',
      ],
      # Inherited, stdout would keep the pipe of `program | head` open.
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=self._stderr,
      # Ctrl-C reaches a whole process group; the worker must outlast it for
      # the round to be finished.
      start_new_session=True,
    )
    self.pid = self._process.pid
    self._channel = grpc.insecure_channel(
      f'127.0.0.1:{self.port}', _CHANNEL_OPTIONS
    )
    self.stub = tff.framework.RemoteExecutorGrpcStub(self._channel)
    _workers.add(self)
    try:
      self.wait_until_ready(start_timeout_s)
      self._check_sole_listener()
    except BaseException:
      self.stop()
      raise

  def wait_until_ready(self, timeout_s: float) -> None:
    """Waits for the connection.

    Args:
      timeout_s: Seconds to wait.

    Raises:
      RuntimeError: If the worker ends or does not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    # This future connects again; an idle channel would not by itself.
    ready = grpc.channel_ready_future(self._channel)
    while not self.stub.is_ready:
      if self.has_ended():
        raise RuntimeError(
          f'{self.describe_end()}: start again if the port was taken; if the '
          f'program or a library is at fault, {_REINSTALL}.'
        )
      if time.monotonic() > deadline:
        raise RuntimeError(
          f'The TFF worker (pid {self.pid}) does not answer on 127.0.0.1:'
          f'{self.port} after {timeout_s:g} s, last line of its stderr: '
          f'{self._last_line()!r}: check firewall and load of this machine.'
        )
      time.sleep(_POLL_S)
    ready.cancel()

  def _check_sole_listener(self) -> None:
    # Two workers can listen on one port (SO_REUSEPORT): a forgotten one would
    # take connections that are meant for this one.
    others = {
      connection.pid
      for connection in psutil.net_connections(kind='tcp')
      if connection.status == psutil.CONN_LISTEN
      and connection.laddr.port == self.port
    } - {self.pid}
    if others:
      raise RuntimeError(
        f'Port {self.port} of the TFF worker (pid {self.pid}) has another '
        f'listener, pid {others.pop()}: end that process or start again.'
      )

  def has_ended(self, within_s: float = 0.0) -> bool:
    """Returns whether the process ends by itself within `within_s` seconds."""
    try:
      self._process.wait(within_s)
    except subprocess.TimeoutExpired:
      return False
    return True

  def describe_end(self) -> str:
    """Returns how the process ended, with its last line of stderr."""
    code = self._process.poll()
    how = f'exit code {code}'
    if code is not None and code < 0:
      how = f'signal {-code} ({signal.Signals(-code).name})'
    return (
      f'The TFF worker (pid {self.pid}, port {self.port}) ended with {how}, '
      f'last line of its stderr: {self._last_line()!r}'
    )

  def _last_line(self) -> str:
    self._stderr.seek(0)
    text = self._stderr.read().decode(errors='replace').strip()
    return text.rpartition('\n')[2]

  def stop(self) -> None:
    """Terminates the worker, kills it after 2 s; does nothing in a fork."""
    if self.is_stopped or os.getpid() != self._owner:
      return
    self.is_stopped = True
    self._process.terminate()
    if not self.has_ended(within_s=2):
      self._process.kill()
      self._process.wait()
    # The channel stays open: a call beside this one (or gRPC's own thread) that
    # still uses it would raise "closed", which TFF does not repeat.
    self._stderr.close()
    _workers.discard(self)


_workers: set[LocalWorker] = set()


@atexit.register
def stop_workers() -> None:
  """Stops every worker of this process; `install_context` starts new ones."""
  for worker in list(_workers):
    worker.stop()


def worker_memory_mib() -> float:
  """Returns the resident memory of all running workers together, in MiB."""
  total = 0
  for worker in list(_workers):
    # A worker that has just died uses none.
    with contextlib.suppress(psutil.NoSuchProcess):
      total += psutil.Process(worker.pid).memory_info().rss
  return total / 2**20


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
  ):
    self._default_num_clients = default_num_clients
    self._max_concurrent_calls = max_concurrent_calls
    self._start_timeout_s = start_timeout_s
    self._max_restarts = max_restarts
    self.failures_in_a_row = 0
    # Awaited calls come from several threads (see `_BackgroundContext`).
    self._lock = threading.RLock()
    self._start()

  def _start(self) -> None:
    # Executors of a dead worker are names that a new one does not know.
    self._executors = tff.framework.ResourceManagingExecutorFactory(
      self._create_stack
    )
    self._worker = LocalWorker(
      max_concurrent_calls=self._max_concurrent_calls,
      start_timeout_s=self._start_timeout_s,
    )

  def _create_stack(self, cardinalities) -> tff.framework.RemoteExecutor:
    executor = tff.framework.RemoteExecutor(self._worker.stub)
    executor.set_cardinalities(
      {tff.CLIENTS: self._default_num_clients, **cardinalities}
    )
    return executor

  def _count_failure(self, what: str) -> None:
    self.failures_in_a_row += 1
    if self.failures_in_a_row > self._max_restarts:
      self.failures_in_a_row = 0
      raise RuntimeError(
        f'{what}; max_restarts={self._max_restarts} is used up. If memory ran '
        'out, sample fewer clients or set max_concurrent_calls.'
      )

  def create_executor(self, cardinalities):
    with self._lock:
      worker = self._worker
      if worker.is_stopped:
        raise RuntimeError('The TFF worker was stopped: call install_context.')
      if not worker.has_ended():
        worker.wait_until_ready(self._start_timeout_s)
      else:
        self._count_failure(worker.describe_end())
        _workers.discard(worker)
        self._start()
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


class _BackgroundContext(tff.framework.AsyncContext):
  """Makes a synchronous context awaitable, with a thread for each call.

  TFF's own asynchronous context blocks the caller's event loop, so that several
  workers take turns. A thread pool would make the exit wait for the round.
  """

  def __init__(self, context: tff.framework.SyncContext):
    self._context = context

  async def invoke(self, comp, arg):
    if asyncio.iscoroutine(arg):
      arg = await arg
    future = concurrent.futures.Future()

    def run():
      try:
        future.set_result(self._context.invoke(comp, arg))
      except BaseException as error:
        future.set_exception(error)

    # A running future cannot be cancelled, and so always takes the result.
    future.set_running_or_notify_cancel()
    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)


def install_context(
  num_workers: int = 1,
  default_num_clients: int = 0,
  max_concurrent_calls: int = -1,
  start_timeout_s: float = 15.0,
  *,
  max_restarts: int = 3,
  asynchronous: bool = False,
) -> tff.framework.SyncContext | tff.framework.AsyncContext:
  """Starts workers and makes them TFF's default execution context.

  Stops the workers of an earlier call. TFF has one default context per thread:
  call this in the thread that runs the computations.

  Args:
    num_workers: Number of processes among which the clients are divided.
    default_num_clients: Number of clients where the arguments do not tell.
    max_concurrent_calls: How many clients a worker computes at once; not
      positive for no limit.
    start_timeout_s: Seconds in which a worker must start, or reconnect.
    max_restarts: How often in a row a worker is replaced before a computation
      raises `RuntimeError`.
    asynchronous: Whether calls return awaitables, as `tff.program` needs.

  Returns:
    The installed context.

  Raises:
    ValueError: If an argument is out of range.
    RuntimeError: If a worker cannot start.
  """
  for name, value, minimum in (
    ('num_workers', num_workers, 1),
    ('default_num_clients', default_num_clients, 0),
    ('max_restarts', max_restarts, 0),
    ('start_timeout_s', start_timeout_s, 1),
  ):
    if value < minimum:
      raise ValueError(f'{name}={value!r} must be at least {minimum}.')

  def create_context():
    factory = _RestartingFactory(
      default_num_clients, max_concurrent_calls, start_timeout_s, max_restarts
    )

    def finish(result):
      factory.failures_in_a_row = 0
      return _tensorflow.transform_result(result)

    return tff.framework.SyncExecutionContext(
      executor_fn=factory,
      compiler_fn=tff.backends.native.desugar_and_transform_to_native,
      transform_args=_tensorflow.transform_args,
      transform_result=finish,
    )

  stop_workers()
  if num_workers == 1:
    context = create_context()
  else:
    context = tff.backends.native.create_mergeable_comp_execution_context(
      [_BackgroundContext(create_context()) for _ in range(num_workers)]
    )
  if asynchronous:
    context = _BackgroundContext(context)
  tff.framework.set_default_context(context)
  return context
