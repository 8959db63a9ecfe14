"""Real worker processes: started, killed, and never left behind."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.simulation import contexts, processes, worker_context


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


def my_workers():
  return [
    child
    for child in psutil.Process().children(recursive=True)
    if child.name() == 'worker_binary'
  ]


@pytest.fixture
def installed():
  yield contexts.install_context('worker', threads_per_op=3)
  worker_context.stop_workers()
  assert my_workers() == []


def test_s1_s2_computes_listens_and_ends(installed):
  assert isinstance(installed, tff.framework.SyncContext)
  assert sum_of_walks([7, 9]) == expected_walk(7) + expected_walk(9)
  [worker] = my_workers()
  [port] = worker_context.ports()
  listening = {
    connection.laddr.port
    for connection in worker.connections(kind='tcp')
    if connection.status == psutil.CONN_LISTEN
  }
  assert listening == {port}
  assert worker.environ()['MALLOC_ARENA_MAX'] == '2'


def test_r7_r8_a_death_in_a_round_is_an_error(installed):
  sum_of_walks([1, 1])
  [worker] = my_workers()
  threading.Timer(0.5, worker.kill).start()
  began = time.monotonic()
  with pytest.raises(RuntimeError, match=r'signal 9 \(SIGKILL\).*start again'):
    sum_of_walks([2**30])
  assert time.monotonic() - began < 20
  contexts.install_context('worker')
  assert sum_of_walks([3]) == expected_walk(3)


def test_r9_a_worker_that_hangs_is_waited_for(installed):
  """TFF gives its calls no deadline, and there is no other worker."""
  sum_of_walks([1])
  [worker] = my_workers()
  worker.suspend()
  threading.Timer(1, worker.resume).start()
  began = time.monotonic()
  assert sum_of_walks([3]) == expected_walk(3)
  assert time.monotonic() - began > 0.9


def test_errors_tell_their_cause_once(installed):
  @tff.tensorflow.computation(np.int32)
  def fail(x):
    text = tf.constant('a b ' * 25_000)
    with tf.control_dependencies([tf.debugging.Assert(x < 0, [text])]):
      return tf.identity(x)

  with pytest.raises(Exception, match='assertion') as caught:
    fail(1)
  cause = processes.first_cause(caught.value)
  assert cause.startswith(
    'In the TFF worker: Failed to run computation: assertion failed: [a b '
  )
  assert len(cause) < 600
  assert sum_of_walks([3]) == expected_walk(3)


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
  worker_context.stop_workers()
  worker_context.stop_workers()
  with pytest.raises(RuntimeError, match='stopped: call install_context'):
    sum_of_walks([1])


def test_installing_again_replaces_the_worker(installed):
  [first] = my_workers()
  contexts.install_context('worker')
  [second] = my_workers()
  assert first.pid != second.pid
  contexts.install_context()
  assert my_workers() == []


def test_r10_proxy_variables_do_not_matter(monkeypatch):
  monkeypatch.setenv('http_proxy', 'http://127.0.0.1:9')
  monkeypatch.delenv('no_proxy', raising=False)
  worker_context.Worker().stop()


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
    ('#!/bin/sh\necho GLIBC_9 not found >&2\nexit 3\n', 0o755, 'code 3.*GLIBC'),
    ('#!/bin/sh\nexec sleep 60\n', 0o755, 'does not answer on 127.0.0.1'),
  ],
)
def test_r10_worker_that_cannot_start(
  tmp_path, monkeypatch, text, mode, message
):
  path = tmp_path / 'absent' if text is None else script(tmp_path, text, mode)
  monkeypatch.setattr(worker_context, '_BINARY', path)
  monkeypatch.setattr(worker_context, '_START_S', 1.0)
  before = set(psutil.Process().children())
  with pytest.raises(RuntimeError, match=message):
    worker_context.Worker()
  assert not set(psutil.Process().children()) - before
  assert not my_workers()


# One import of TFF (10 s) serves all ends: each is a fork that starts a worker.
ENDS = """
import os, signal, sys, time
import psutil
from tff_ssl.simulation import worker_context

def end_as(end):
  print(worker_context.Worker().pid, flush=True)
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
def test_r11_no_worker_outlives_python():
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


def test_a_worker_that_ignores_sigterm_is_killed():
  worker = worker_context.Worker()
  os.kill(worker.pid, signal.SIGSTOP)  # Stopped, it does not take SIGTERM.
  began = time.monotonic()
  worker.stop()
  assert time.monotonic() - began < 15
  assert not psutil.pid_exists(worker.pid)
