"""Real worker processes: started, killed, and never left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import portpicker
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.simulation import channels, local_worker, workers


@tff.tensorflow.computation(np.int32)
def walk(steps):
  """A long computation that no one can shorten: a linear congruence."""

  def step(index, value):
    return index + 1, (value * 1664525 + 1013904223) % 2**31

  start = tf.constant(0), tf.constant(1, tf.int64)
  return tf.while_loop(lambda index, _: index < steps, step, start)[1]


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def sum_of_walks(steps):
  return tff.federated_sum(tff.federated_map(walk, steps))


def expected_walk(steps):
  value = 1
  for _ in range(steps):
    value = (value * 1664525 + 1013904223) % 2**31
  return value


STEPS = 300_000  # About 3 s.
EXPECTED = expected_walk(STEPS) + expected_walk(7)


def my_workers():
  return [
    child
    for child in psutil.Process().children(recursive=True)
    if child.name() == 'worker_binary'
  ]


@pytest.fixture
def installed():
  yield workers.install_context()
  workers.stop_workers()
  assert my_workers() == []


class Killer:
  """Kills the worker `count` times, each soon after it has come up."""

  def __init__(self, count):
    self.killed = 0
    self._count = count
    self._thread = threading.Thread(target=self._run, daemon=True)

  def _run(self):
    known = set()
    while self.killed < self._count:
      time.sleep(0.6)
      for worker in set(my_workers()) - known:
        known.add(worker)
        worker.kill()
        self.killed += 1

  def __enter__(self):
    self._thread.start()
    return self

  def __exit__(self, *unused):
    self._count = 0
    self._thread.join()


def test_computes_and_reports_memory(installed):
  assert isinstance(installed, tff.framework.SyncContext)
  assert sum_of_walks([7, 9]) == expected_walk(7) + expected_walk(9)
  [worker] = my_workers()
  reported = workers.worker_memory_mib()
  assert 10 < reported < 5_000
  assert reported == pytest.approx(worker.memory_info().rss / 2**20, rel=0.2)


@pytest.mark.dear
def test_death_in_a_round_repeats_it(installed):
  sum_of_walks([1, 1])
  with Killer(2) as killer:
    assert sum_of_walks([STEPS, 7]) == EXPECTED
  assert killer.killed == 2
  # Two deaths are forgotten after the success: three more are survived.
  for _ in range(3):
    [worker] = my_workers()
    worker.kill()
    worker.wait()
    assert sum_of_walks([3]) == expected_walk(3)


@pytest.mark.parts
def test_too_many_deaths_raise_in_bounded_time():
  workers.install_context(max_restarts=1)
  began = time.monotonic()
  with (
    Killer(2),
    pytest.raises(RuntimeError, match=r'signal 9 \(SIGKILL\).*max_restarts=1'),
  ):
    sum_of_walks([2**30])
  assert time.monotonic() - began < 20
  # Who catches the error can go on.
  assert sum_of_walks([3]) == expected_walk(3)
  workers.stop_workers()


@pytest.mark.parts
def test_a_worker_that_computes_for_long_is_left_alone():
  workers.install_context(answer_timeout_s=2)
  [worker] = my_workers()
  began = time.monotonic()
  while time.monotonic() < began + 2.5:  # The first ping comes after 2 s.
    assert sum_of_walks([STEPS, 7]) == EXPECTED
  assert my_workers() == [worker]
  workers.stop_workers()


@pytest.mark.parts
def test_a_hanging_worker_is_replaced(caplog):
  workers.install_context(answer_timeout_s=1)
  sum_of_walks([1, 1])
  [worker] = my_workers()
  hang = threading.Timer(0.3, worker.suspend)  # SIGSTOP, amid its work.
  began = time.monotonic()
  hang.start()
  assert sum_of_walks([STEPS, 7]) == EXPECTED
  assert time.monotonic() - began < 30
  assert not worker.is_running()
  assert len(my_workers()) == 1
  assert f'pid {worker.pid}' in caplog.text
  assert 'has not answered for 1 s and was killed. A new one' in caplog.text
  workers.stop_workers()


def test_too_many_hangs_raise_in_bounded_time():
  workers.install_context(answer_timeout_s=1, max_restarts=0)
  [worker] = my_workers()
  worker.suspend()
  began = time.monotonic()
  with pytest.raises(
    RuntimeError, match='not answered for 1 s.*max_restarts=0.*answer_timeout_s'
  ):
    sum_of_walks([3])
  assert time.monotonic() - began < 20
  workers.stop_workers()


@pytest.mark.parts
def test_asynchronous_calls_leave_the_event_loop_free():
  context = workers.install_context(asynchronous=True)
  assert isinstance(context, tff.framework.AsyncContext)

  async def compute():
    call = asyncio.ensure_future(sum_of_walks([STEPS, 7]))
    ticks = 0
    while not call.done():
      await asyncio.sleep(0.02)
      ticks += 1
    return call.result(), ticks

  result, ticks = asyncio.run(compute())
  workers.stop_workers()
  assert result == EXPECTED
  assert ticks > 10


def test_error_of_a_computation_is_not_repeated(installed):
  @tff.tensorflow.computation(np.int32)
  def fail(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 0)]):
      return tf.identity(x)

  with pytest.raises(Exception, match='assert'):
    fail(1)
  assert sum_of_walks([3]) == expected_walk(3)


def test_a_long_error_tells_its_cause(installed):
  @tff.tensorflow.computation(np.int32)
  def fail(x):
    text = tf.constant('a b ' * 25_000)
    with tf.control_dependencies([tf.debugging.Assert(x < 0, [text])]):
      return tf.identity(x)

  with pytest.raises(grpc.RpcError) as caught:
    fail(1)
  cause = channels.first_cause(caught.value)
  assert cause.startswith('Failed to run computation: assertion failed: [a b ')
  assert len(cause) < 600


def test_living_worker_that_rejects_calls(installed, monkeypatch):
  def reject(request):
    raise tff.framework.RetryableError('not now')

  stub = installed.executor_factory._worker.stub
  with monkeypatch.context() as patch:
    patch.setattr(stub, 'create_value', reject)
    with pytest.raises(RuntimeError, match='runs but rejects calls'):
      sum_of_walks([3])
  assert sum_of_walks([3]) == expected_walk(3)


def test_stopped_worker_says_so(installed):
  workers.stop_workers()
  workers.stop_workers()
  with pytest.raises(RuntimeError, match='stopped: call install_context'):
    sum_of_walks([1])


def test_installing_again_replaces_the_worker(installed):
  [first] = my_workers()
  workers.install_context()
  [second] = my_workers()
  assert first.pid != second.pid
  assert sum_of_walks([3]) == expected_walk(3)


def test_proxy_variables_do_not_matter(monkeypatch):
  monkeypatch.setenv('http_proxy', 'http://127.0.0.1:9')
  monkeypatch.delenv('no_proxy', raising=False)
  workers.LocalWorker(start_timeout_s=5).stop()


def script(folder, text, mode=0o755):
  path = folder / 'worker_binary'
  path.write_text(text)
  path.chmod(mode)
  return path


@pytest.mark.parametrize(
  'text, mode, message',
  [
    (None, None, 'is missing: reinstall'),
    ('#!/bin/sh\n', 0o644, 'cannot execute .*Permission denied'),
    ('#!/no/such/shell\n', 0o755, 'cannot execute .*No such file'),
    ('\x7fELF', 0o755, 'cannot execute .*Exec format error'),
    ('#!/bin/sh\necho GLIBC_9 not found >&2\nexit 3\n', 0o755, 'code 3.*GLIBC'),
    ('#!/bin/sh\nkill -SEGV $$\n', 0o755, 'signal 11'),
    ('#!/bin/sh\nexec sleep 60\n', 0o755, 'does not answer on 127.0.0.1'),
  ],
)
def test_worker_that_cannot_start(tmp_path, monkeypatch, text, mode, message):
  path = tmp_path / 'absent' if text is None else script(tmp_path, text, mode)
  monkeypatch.setattr(local_worker, '_BINARY', path)
  before = set(psutil.Process().children())
  began = time.monotonic()
  with pytest.raises(RuntimeError, match=message):
    workers.install_context(start_timeout_s=1.5)
  assert time.monotonic() - began < 15
  assert not set(psutil.Process().children()) - before
  assert not my_workers()


def test_taken_port(monkeypatch):
  with socket.socket(socket.AF_INET6) as taken:
    taken.bind(('::', 0))
    taken.listen()
    port = taken.getsockname()[1]
    monkeypatch.setattr(portpicker, 'pick_unused_port', lambda: port)
    with pytest.raises(RuntimeError, match='if the port was taken'):
      workers.LocalWorker()


def test_port_shared_with_another_worker(monkeypatch):
  first = workers.LocalWorker()
  monkeypatch.setattr(portpicker, 'pick_unused_port', lambda: first.port)
  with pytest.raises(RuntimeError, match=f'another listener, pid {first.pid}'):
    workers.LocalWorker()
  first.stop()


@pytest.mark.parametrize(
  'argument',
  [{'default_num_clients': -1}, {'max_restarts': -1}, {'answer_timeout_s': 0}],
)
def test_out_of_range_arguments(argument):
  [(name, value)] = argument.items()
  with pytest.raises(ValueError, match=f'{name}={value} must be at least'):
    workers.install_context(**argument)


# One import of TFF (10 s) serves all ends: each is a fork that starts a worker.
ENDS = """
import os, signal, sys, time
import psutil
from tff_ssl.simulation import local_worker, workers

def end_as(end):
  print(workers.LocalWorker().pid, flush=True)
  if end == 'exception':
    raise ZeroDivisionError
  if end.startswith('SIG'):
    # Under nohup, or in the background, some are ignored from the start.
    if end != 'SIGKILL':
      signal.signal(getattr(signal, end), signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), getattr(signal, end))
    time.sleep(60)
  while end == 'pipe':
    print(end, flush=True)

def is_running(pid):
  try:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False

for end in sys.argv[1:]:
  reader, writer = os.pipe()
  if os.fork() == 0:
    os.close(reader)
    os.dup2(writer, 1)
    os.close(writer)
    end_as(end)
    sys.exit()
  os.close(writer)
  with os.fdopen(reader) as lines:
    worker = int(lines.readline())
    began = time.monotonic()
    if end != 'pipe':
      lines.read()  # Until the last holder of the pipe has ended.
  os.wait()
  while is_running(worker) and time.monotonic() < began + 60:
    time.sleep(0.02)
  print(end, time.monotonic() - began)
"""


@pytest.mark.parts
def test_no_worker_outlives_python():
  ends = ['exit', 'exception', 'SIGINT', 'SIGTERM', 'SIGHUP', 'SIGKILL', 'pipe']
  done = subprocess.run(
    [sys.executable, '-c', ENDS, *ends],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
    timeout=180,
  )
  seconds = dict(line.split() for line in done.stdout.splitlines())
  assert list(seconds) == ends
  # 1 to 3 s where nothing else runs; a worker left behind never ends.
  slow = {end: value for end, value in seconds.items() if float(value) >= 30}
  assert not slow


def test_a_forked_copy_leaves_the_worker_alone():
  worker = workers.LocalWorker()
  child = os.fork()
  if child == 0:
    worker.stop()
    os._exit(0)
  os.waitpid(child, 0)
  assert not worker.has_ended(0.3)
  worker.stop()
  assert worker.has_ended()


def test_a_worker_that_ignores_sigterm_is_killed():
  worker = workers.LocalWorker()
  os.kill(worker.pid, signal.SIGSTOP)  # Stopped, it does not take SIGTERM.
  began = time.monotonic()
  worker.stop()
  assert time.monotonic() - began < 15
  assert not psutil.pid_exists(worker.pid)


def test_threads_for_shares_the_cores():
  cores = os.cpu_count()
  assert workers.threads_for(0) == cores
  assert workers.threads_for(1) == cores
  assert workers.threads_for(cores) == 1
  assert workers.threads_for(100 * cores) == 1


def test_worker_gets_its_threads_arenas_and_kernels(monkeypatch):
  for name in ('TF_NUM_INTRAOP_THREADS', 'MALLOC_ARENA_MAX'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.delenv('TF_ENABLE_ONEDNN_OPTS', raising=False)
  worker = local_worker.LocalWorker(threads_per_op=3)
  try:
    environment = psutil.Process(worker.pid).environ()
    assert environment['TF_NUM_INTRAOP_THREADS'] == '3'
    assert environment['MALLOC_ARENA_MAX'] == '2'
    assert environment['TF_ENABLE_ONEDNN_OPTS'] == '1'
  finally:
    worker.stop()


@pytest.mark.parametrize(
  ('variable', 'use_onednn', 'expected'),
  [('0', True, '0'), ('1', False, '1'), (None, False, None)],
)
def test_kernels_are_those_of_the_variable_or_argument(
  monkeypatch, variable, use_onednn, expected
):
  name = 'TF_ENABLE_ONEDNN_OPTS'
  monkeypatch.delenv(name, raising=False)
  if variable is not None:
    monkeypatch.setenv(name, variable)
  workers.install_context(use_onednn=use_onednn)
  [worker] = my_workers()
  assert psutil.Process(worker.pid).environ().get(name) == expected
  workers.stop_workers()
