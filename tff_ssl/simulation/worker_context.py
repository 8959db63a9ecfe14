"""A context on TFF's own program, the `worker_binary` of its wheel.

It computes in a process of its own, which

  * is a `RuntimeError` within a time limit where it cannot start, with its last
    line of stderr, and likewise where it has ended;
  * does not outlive Python: it is terminated at exit, and the Linux kernel
    kills it should Python itself be killed.

It listens on all network interfaces without authentication (the program has no
option for that): use it behind a firewall. One that hangs is not noticed.
"""

import atexit
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import grpc
import portpicker
import tensorflow_federated as tff

from tff_ssl import compat, compiled
from tff_ssl.simulation import processes

_BINARY = pathlib.Path(tff.__file__).parent / 'data' / 'worker_binary'
_REINSTALL = 'reinstall tensorflow-federated 0.87 for this platform'
_START_S = 15.0
_POLL_S = 0.02
# A death was seen so long after the connection had closed, at most.
_DEATH_S = 1.0
# The text of an error is sent as metadata, too.
_MAX_METADATA_BYTES = 16 * 2**20
_CHANNEL_OPTIONS = (
  # TFF's own limit; gRPC's default of 4 MB is smaller than most models.
  ('grpc.max_receive_message_length', 2_000_000_000),
  ('grpc.max_send_message_length', 2_000_000_000),
  # By default, an error of more than 16 kB arrives without its text.
  ('grpc.max_metadata_size', _MAX_METADATA_BYTES),
  ('grpc.absolute_max_metadata_size', _MAX_METADATA_BYTES),
  # With http_proxy set, gRPC would ask the proxy for this very machine.
  ('grpc.enable_http_proxy', 0),
  # The first attempt comes before the worker listens; the default waits 1 s.
  ('grpc.initial_reconnect_backoff_ms', 100),
  ('grpc.min_reconnect_backoff_ms', 100),
)


class Worker:
  """One running worker process and the channel to it.

  The worker ends with the thread that started it: start it in the main thread,
  or in one that lives as long as the worker is needed.

  Attributes:
    stub: What TFF's executors send their requests to.
    is_stopped: Whether `stop` was called; a death does not set it.
  """

  def __init__(self, clients_at_once: int = -1, threads_per_op: int = 1):
    """Starts a worker and waits for its answer; -1: all clients at once."""
    if not _BINARY.is_file():
      raise RuntimeError(f'The TFF worker {_BINARY} is missing: {_REINSTALL}.')
    self._owner = os.getpid()
    self.is_stopped = False
    self.port = portpicker.pick_unused_port()
    self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
    self._process = subprocess.Popen(
      processes.bound_command(
        str(_BINARY),
        f'--port={self.port}',
        f'--max_concurrent_computation_calls={clients_at_once}',
      ),
      # Inherited, stdout would keep the pipe of `program | head` open.
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=self._stderr,
      # Ctrl-C reaches a whole process group; the worker must outlast it for
      # the round to be finished.
      start_new_session=True,
      # By default glibc gives each of its many threads an arena of its own.
      # Model-sized buffers scatter over all of them, and its memory grows with
      # every round.
      env={
        'MALLOC_ARENA_MAX': '2',
        'TF_NUM_INTRAOP_THREADS': str(threads_per_op),
        **os.environ,
      },
    )
    self.pid = self._process.pid
    self._channel = grpc.insecure_channel(
      f'127.0.0.1:{self.port}', _CHANNEL_OPTIONS
    )
    self.stub = tff.framework.RemoteExecutorGrpcStub(self._channel)
    _workers.add(self)
    try:
      self._wait_until_ready()
    except BaseException:
      self.stop()
      raise

  def _wait_until_ready(self) -> None:
    deadline = time.monotonic() + _START_S
    # This future connects again; an idle channel would not by itself.
    ready = grpc.channel_ready_future(self._channel)
    while not self.stub.is_ready:
      self.check()
      if time.monotonic() > deadline:
        raise RuntimeError(
          f'The TFF worker (pid {self.pid}) does not answer on 127.0.0.1:'
          f'{self.port} after {_START_S:g} s, last line of its stderr: '
          f'{self._last_line()!r}: check firewall and load of this machine, or '
          "take kind='in_process'."
        )
      time.sleep(_POLL_S)
    ready.cancel()

  def check(self, within_s: float = 0.0) -> None:
    """Raises `RuntimeError` if it is stopped, or ends in `within_s` seconds."""
    if self.is_stopped:
      raise RuntimeError('The TFF worker was stopped: call install_context.')
    try:
      code = self._process.wait(within_s)
    except subprocess.TimeoutExpired:
      return
    how = f'exit code {code}'
    if code < 0:
      how = f'signal {-code} ({signal.Signals(-code).name})'
    raise RuntimeError(
      f'The TFF worker (pid {self.pid}, port {self.port}) ended with {how}, '
      f'last line of its stderr: {self._last_line()!r}: start again. If memory '
      'ran out, sample fewer clients or compute fewer at once; if the program '
      f'or a library is at fault, {_REINSTALL}.'
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
    try:
      self._process.wait(2)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    # The channel stays open: a call beside this one (or gRPC's own thread) that
    # still uses it would raise "closed", which TFF does not repeat.
    self._stderr.close()
    _workers.discard(self)


_workers: set[Worker] = set()


@atexit.register
def stop_workers() -> None:
  """Stops every worker of this process."""
  for worker in list(_workers):
    worker.stop()


def ports() -> list[int]:
  """Returns the ports on which workers of this process listen."""
  return sorted(worker.port for worker in _workers)


class _CheckedFactory(compat.ExecutorFactory):
  """Executors on one worker.

  TFF repeats a call whose worker is unavailable for ever, and asks this factory
  before each attempt: one that has died ends that.
  """

  def __init__(self, worker: Worker, default_num_clients: int):
    self._worker = worker

    def create_stack(cardinalities):
      # By default the worker keeps 20 values, those of six rounds, before it
      # frees any. To free each at once would take three more calls a round.
      executor = tff.framework.RemoteExecutor(worker.stub, dispose_batch_size=4)
      executor.set_cardinalities(
        {compat.CLIENTS: default_num_clients, **cardinalities}
      )
      return executor

    self._executors = tff.framework.ResourceManagingExecutorFactory(
      create_stack
    )

  def create_executor(self, cardinalities):
    self._worker.check()
    return self._executors.create_executor(cardinalities)

  def clean_up_executor(self, cardinalities) -> None:
    if self._worker.is_stopped:
      return
    self._executors.clean_up_executor(cardinalities)
    # TFF calls this while it handles the exception of a failed attempt.
    if isinstance(sys.exc_info()[1], compat.RetryableError):
      self._worker.check(within_s=_DEATH_S)
      raise RuntimeError(
        f'The TFF worker (pid {self._worker.pid}) runs but rejects calls: '
        'start again.'
      )


class _WorkerContext(compat.SyncExecutionContext):
  """Says what a worker's error says."""

  def invoke(self, comp, arg):
    try:
      return super().invoke(comp, arg)
    except grpc.RpcError as error:
      raise RuntimeError(
        f'In the TFF worker: {processes.first_cause(error)}'
      ) from error


def build(
  default_num_clients: int, clients_at_once: int, threads_per_op: int
) -> compat.SyncContext:
  """Starts a worker and returns a context on it."""
  worker = Worker(clients_at_once, threads_per_op)
  return _WorkerContext(
    executor_fn=_CheckedFactory(worker, default_num_clients),
    compiler_fn=lambda comp: (
      tff.backends.native.desugar_and_transform_to_native(
        compiled.simulate_secure_sums(comp)
      )
    ),
    transform_args=tff.tensorflow.transform_args,
    transform_result=tff.tensorflow.transform_result,
  )
