"""One TFF worker process: how it starts, ends and is watched."""

import atexit
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

import grpc
import portpicker
import psutil
import tensorflow_federated as tff

from tff_ssl.simulation import bound_process, channels

_BINARY = pathlib.Path(tff.__file__).parent / 'data' / 'worker_binary'
_REINSTALL = 'reinstall tensorflow-federated 0.87 for this platform'
_POLL_S = 0.02
# By default glibc gives each of the worker's many threads an arena of its own.
# Model-sized buffers then scatter over all of them, and the resident memory
# grows with every round; with two it stays flat, at the same speed.
_ENVIRONMENT = {'MALLOC_ARENA_MAX': '2'}
# TensorFlow does so by itself on processors with AVX512_VNNI or later alone.
# Those with AVX2 gain, too (docs/explanation/speed.md).
_WITH_ONEDNN = {'TF_ENABLE_ONEDNN_OPTS': '1'}


class LocalWorker:
  """One running worker process and the channel to it.

  A thread asks the worker now and then whether it is alive. A worker that does
  not answer is killed: a call that waits for it then ends, as after any death.
  A worker that computes for long answers meanwhile.

  The worker ends with the thread that started it: start it in the main thread,
  or in one that lives as long as the worker is needed.

  Attributes:
    pid: Process id.
    port: TCP port on which the worker listens.
    stub: What TFF's executors send their requests to.
    is_stopped: Whether `stop` was called; a death does not set it.
    was_silent: Whether it was killed since it did not answer.
  """

  def __init__(
    self,
    *,
    max_concurrent_calls: int = -1,
    start_timeout_s: float = 15.0,
    threads_per_op: int = 0,
    answer_timeout_s: float = 60.0,
    use_onednn: bool = True,
  ):
    """Starts a worker and waits until it answers.

    Args:
      max_concurrent_calls: How many clients are computed at once, or -1.
      start_timeout_s: Seconds the start may take.
      threads_per_op: Threads of one TensorFlow op, or 0 for one per core.
      answer_timeout_s: Seconds without an answer after which the worker is
        killed.
      use_onednn: See `workers.build_context`.

    Raises:
      RuntimeError: If the worker cannot start, naming the cause and remedy.
    """
    if not _BINARY.is_file():
      raise RuntimeError(f'The TFF worker {_BINARY} is missing: {_REINSTALL}.')
    self._owner = os.getpid()
    self.is_stopped = False
    self.was_silent = False
    self._answer_timeout_s = answer_timeout_s
    self._stopping = threading.Event()
    self.port = portpicker.pick_unused_port()
    self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
    self._process = subprocess.Popen(
      bound_process.bind(
        str(_BINARY),
        f'--port={self.port}',
        f'--max_concurrent_computation_calls={max_concurrent_calls}',
      ),
      # Inherited, stdout would keep the pipe of `program | head` open.
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=self._stderr,
      # Ctrl-C reaches a whole process group; the worker must outlast it for
      # the round to be finished.
      start_new_session=True,
      env={
        **_ENVIRONMENT,
        **(_WITH_ONEDNN if use_onednn else {}),
        'TF_NUM_INTRAOP_THREADS': str(threads_per_op),
        **os.environ,
      },
    )
    self.pid = self._process.pid
    self._channel = grpc.insecure_channel(
      f'127.0.0.1:{self.port}', channels.OPTIONS
    )
    self.stub = tff.framework.RemoteExecutorGrpcStub(self._channel)
    _workers.add(self)
    try:
      self.wait_until_ready(start_timeout_s)
      self._check_sole_listener()
    except BaseException:
      self.stop()
      raise
    threading.Thread(target=self._watch, daemon=True).start()

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

  def _watch(self) -> None:
    """Kills the worker once it does not answer, until it ends or is stopped."""
    pings = channels.Pings(self._channel)
    answered = time.monotonic()
    while not self._stopping.wait(
      min(channels.PING_EVERY_S, self._answer_timeout_s)
    ):
      # The second ping is for a Python that was itself stopped for a while, and
      # finds the time of the first one to be up.
      if pings.is_answered(self._answer_timeout_s) or pings.is_answered(
        channels.SHORT_S
      ):
        answered = time.monotonic()
        continue
      if self.is_stopped or self.has_ended():
        return
      # A ping may also fail at once, without a connection.
      if time.monotonic() - answered > self._answer_timeout_s:
        self.was_silent = True
        self._process.kill()
        return

  def has_ended(self, within_s: float = 0.0) -> bool:
    """Returns whether the process ends by itself within `within_s` seconds."""
    try:
      self._process.wait(within_s)
    except subprocess.TimeoutExpired:
      return False
    return True

  def describe_end(self) -> str:
    """Returns how the process ended, with its last line of stderr."""
    if self.was_silent:
      return (
        f'The TFF worker (pid {self.pid}, port {self.port}) has not answered '
        f'for {self._answer_timeout_s:g} s and was killed'
      )
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
    self._stopping.set()
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


def listening_ports() -> list[int]:
  """Returns the ports of all running workers of this process."""
  return sorted(worker.port for worker in _workers)


def worker_memory_mib() -> float:
  """Returns the resident memory of all running workers together, in MiB."""
  total = 0
  for worker in list(_workers):
    # A worker that has just died uses none.
    with contextlib.suppress(psutil.NoSuchProcess):
      total += psutil.Process(worker.pid).memory_info().rss
  return total / 2**20
