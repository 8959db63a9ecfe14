"""Rounds on a Ray cluster of two nodes, of which processes and one node die.

Both nodes are on this machine, each with one core.
"""

import collections
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time

import federations
import numpy as np
import psutil
import pytest
import pythons
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, assert_same

from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.models import functional
from tff_ssl.simulation import (
  client_reader,
  contexts,
  ray_cluster,
  ray_context,
  ray_worker,
)

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group('ray')]

DEADLINE_S = 4
STEPS = 30_000  # A quarter of a second for a client.
KEYS = [
  np.array([client, 0, slot, 0], np.int32)
  for slot, client in enumerate((2, 3, 5, 4, 1))
]


def _examples(client):
  """Examples of a client, after a computation that no one can shorten."""

  def walk(index, value):
    return index + 1, (value * 1664525 + 1013904223) % 2**31

  start = tf.constant(0), tf.constant(1, tf.int64)
  _, value = tf.while_loop(lambda index, _: index < STEPS, walk, start)
  rows = tf.range(client + tf.cast(tf.minimum(value, 0), tf.int32))
  x = tf.stack([tf.sin(tf.cast(rows, tf.float32)), tf.ones(client)], axis=1)
  examples = collections.OrderedDict(x=x, y=rows % 2)
  return tf.data.Dataset.from_tensors(examples)


@pytest.fixture(scope='module')
def process():
  weights = tff.learning.models.ModelWeights
  model = functional.FunctionalModel(
    initial_weights=lambda seed: weights([np.ones([2, 2], np.float32)], []),
    predict=lambda trainable, non_trainable, x, *, training, seed=None: (
      tf.matmul(x, trainable[0]),
      non_trainable,
    ),
    input_spec=tf.TensorSpec([None, 2], tf.float32),
    weights_spec=weights([tf.TensorSpec([2, 2], tf.float32)], []),
    is_random=False,
  )
  fedavg = PROCESSES['fedavg'].build(
    model,
    data_spec=federations.data_spec((2,)),
    views=views.PlainViews(),
    batch_size=2,
    local_epochs=1,
  )
  reader = tff.tensorflow.computation(_examples, np.int32)
  return client_reader.compose_with_reader(fedavg, reader)


@pytest.fixture(scope='module')
def cluster():
  """Two nodes of one core each; the second one may be removed."""
  ray = ray_cluster.import_ray()
  from ray import cluster_utils

  nodes = cluster_utils.Cluster(
    initialize_head=True, head_node_args={'num_cpus': 1}
  )
  # Before there is another node to connect to: a driver ends with its own.
  ray_cluster.connect(nodes.address)
  nodes.second = nodes.add_node(num_cpus=1)
  yield nodes
  ray.shutdown()
  nodes.shutdown()


@pytest.fixture(scope='module')
def context(cluster):
  built = ray_context.build_ray_context(
    cluster.address, num_parts=4, part_timeout_s=60.0
  )
  built._compute_parts.__self__._part_timeout_s = DEADLINE_S
  return built


@pytest.fixture(scope='module')
def expected(process, context):
  """The first round on the cluster while all is well."""
  del context  # Ray starts its processes meanwhile.
  with installed(contexts.build_context()):
    return process.next(process.initialize(), KEYS)


def installed(context):
  return tff.framework.get_context_stack().install(context)


def processes():
  """Returns the processes of the cluster that compute."""
  return [
    process
    for process in psutil.process_iter(['cmdline', 'status'])
    if (process.info['cmdline'] or [''])[0].startswith('ray::RayWorker')
    and process.info['status'] != psutil.STATUS_STOPPED
  ]


def send(signal_number):
  """Sends a signal to one of them."""
  random.choice(processes()).send_signal(signal_number)


def later(seconds, function, *arguments):
  threading.Timer(seconds, function, arguments).start()


def run_round(context, process):
  with installed(context):
    return process.next(process.initialize(), KEYS)


def assert_close_rounds(actual, expected):
  counts = actual.metrics['client_work']['clients']
  assert counts == expected.metrics['client_work']['clients']
  assert counts['participating'] == len(KEYS)
  assert_close(actual, expected, atol=1e-6)


@pytest.mark.parametrize('num_parts', [1, 2, 4, 7])
def test_any_number_of_parts_equals_one_process(
  context, process, expected, num_parts, monkeypatch
):
  monkeypatch.setattr(context, '_num_parts', num_parts)
  assert_close_rounds(run_round(context, process), expected)


def test_r7_a_killed_process_is_replaced(context, process):
  calm = run_round(context, process)
  later(random.uniform(0.1, 0.5), send, signal.SIGKILL)
  assert_same(run_round(context, process), calm)


def test_r9_a_hanging_process_is_given_up(context, process, caplog):
  calm = run_round(context, process)
  later(0.2, send, signal.SIGSTOP)
  began = time.monotonic()
  with caplog.at_level(logging.WARNING):
    assert_same(run_round(context, process), calm)
  assert DEADLINE_S < time.monotonic() - began < DEADLINE_S + 15
  assert f'has computed for {DEADLINE_S} s: another one' in caplog.text


class Interrupt(BaseException):
  """What the handler of a signal raises."""


def test_a_signal_interrupts_a_round(context, process):
  calm = run_round(context, process)

  def handle(number, frame):
    del number, frame
    raise Interrupt

  before = signal.signal(signal.SIGALRM, handle)
  try:
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(Interrupt):
      run_round(context, process)
  finally:
    signal.signal(signal.SIGALRM, before)
  # What is still computed for it does not disturb the next round.
  assert_same(run_round(context, process), calm)


@pytest.mark.parametrize('code, expected', [(15, 143), (1, 1)])
def test_exits_while_ray_starts(monkeypatch, code, expected):
  """Ray's handler of SIGTERM exits with 15, before it can be replaced."""

  class Ray:
    def is_initialized(self):
      return False

    def init(self, **options):
      sys.exit(code)

  monkeypatch.setattr(ray_cluster, 'import_ray', Ray)
  with pytest.raises(SystemExit) as exit_:
    ray_cluster.connect('local')
  assert exit_.value.code == expected


def test_client_data_that_lie_here(context):
  """Data sets of this process cannot be sent; their elements can."""
  sequences = tff.FederatedType(tff.SequenceType(np.int32), tff.CLIENTS)

  @tff.tensorflow.computation(sequences.member)
  def total(numbers):
    return numbers.reduce(np.int32(0), lambda a, b: a + b)

  @tff.federated_computation(sequences)
  def grand_total(numbers):
    return tff.federated_sum(tff.federated_map(total, numbers))

  with installed(context):
    data = [
      tf.data.Dataset.range(n).map(lambda x: tf.cast(x, tf.int32))
      for n in (3, 4, 5)
    ]
    assert grand_total(data) == 3 + 6 + 10


def test_an_error_of_a_computation_is_told_and_not_repeated(context):
  @tff.tensorflow.computation(np.float32)
  def fail(x):
    with tf.control_dependencies(
      [tf.debugging.Assert(x < 0.0, ['this client failed'])]
    ):
      return tf.identity(x)

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def fail_everywhere(values):
    return tff.federated_sum(tff.federated_map(fail, values))

  before = {process.pid for process in processes()}
  with installed(context), pytest.raises(RuntimeError, match='client failed'):
    fail_everywhere([1.0, 2.0])
  assert {process.pid for process in processes()} == before
  # The other part fails, too, and does not disturb who comes next.
  with installed(context):
    assert fail_everywhere([-1.0, -2.0]) == -3


def test_a_file_that_a_machine_lacks(tmp_path):
  path = tmp_path / 'store'
  cores = os.sched_getaffinity(0)
  one = ray_worker.RayWorker(ray_worker.Equipment(needed_files=(str(path),)))
  os.sched_setaffinity(0, cores)
  with pytest.raises(
    RuntimeError, match='cannot read .*store .*: the file must lie at the same'
  ):
    one.check()
  path.write_bytes(b'some bytes')
  assert one.check() == os.getpid()


def test_a_cluster_without_room(cluster, monkeypatch):
  monkeypatch.setattr(ray_context, '_START_TIMEOUT_S', 2.0)
  with pytest.raises(
    RuntimeError, match='No process of 3 cores has started within 2 s'
  ):
    ray_context.build_ray_context(cluster.address, cores_per_process=3)


def test_r8_a_lost_node(cluster, context, process):
  """The last of the tests that use the cluster: a node is gone then."""
  calm = run_round(context, process)
  later(0.2, cluster.remove_node, cluster.second)
  began = time.monotonic()
  assert_same(run_round(context, process), calm)
  assert time.monotonic() - began < DEADLINE_S + 15
  assert_same(run_round(context, process), calm)
  assert len(processes()) == 1


@pytest.mark.parametrize(
  'name',
  ['num_parts', 'cores_per_process', 'max_processes', 'part_timeout_s'],
)
def test_values_out_of_range(name):
  with pytest.raises(ValueError, match=f'{name} must be .* >= 1, but is 0'):
    ray_context.build_ray_context('auto', **{name: 0})


_FREES_RESULTS = """
import signal, threading
import numpy as np, psutil
import tensorflow_federated as tff
from tff_ssl.simulation import ray_cluster, ray_context

big = tff.FederatedType(tff.TensorType(np.float32, [10**6]), tff.CLIENTS)
values = [np.ones(10**6, np.float32)]


@tff.federated_computation(big)
def total(value):
  return tff.federated_sum(value)


context = ray_context.build_ray_context('local', num_parts=1)
parts, compute_parts = [], context._compute_parts
context._compute_parts = lambda *args: (
  parts.append(compute_parts(*args)) or parts[-1]
)
assert context.invoke(total, values)[-1] == 1
[node] = [p for p in psutil.Process().children() if p.name() == 'raylet']
node.send_signal(signal.SIGSTOP)
thread = threading.Thread(target=context.invoke, args=(total, values))
thread.start()
thread.join(2)
assert thread.is_alive()  # It waits for room in the store.
[[(part,)]] = parts
assert part.nbytes == 4 * 10**6
del part
parts.clear()
print('Freed.')
ray_cluster.leave(0)
"""


def test_r9_what_came_from_a_hanging_node_can_be_freed():
  process = pythons.start('-c', _FREES_RESULTS)
  try:
    assert process.communicate(timeout=90) == ('Freed.\n', None)
  except subprocess.TimeoutExpired:  # It holds Python's lock.
    for one in psutil.Process(process.pid).children(recursive=True):
      one.kill()
    process.kill()
    raise


def test_ray_does_not_hide_what_is_installed():
  """It has an older psutil of its own."""
  program = """
import importlib.metadata
installed = importlib.metadata.version('psutil')
from tff_ssl.simulation import ray_cluster
ray_cluster.import_ray()
assert importlib.metadata.version('psutil') == installed
"""
  subprocess.run([sys.executable, '-c', program], check=True)


def test_without_ray(monkeypatch):
  monkeypatch.setitem(sys.modules, 'ray', None)
  with pytest.raises(RuntimeError, match='Ray is not installed.*make ray'):
    ray_context.build_ray_context()
