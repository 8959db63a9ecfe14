"""Workers that someone else has started: killed, stopped, absent.

They run on this machine, each started by itself, and are reached by address.
"""

import collections
import os
import signal
import threading
import time

import numpy as np
import portpicker
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.models import functional
from tff_ssl.simulation import client_reader, workers
from tff_ssl.simulation.divided_context import DividedContext, Member
from tff_ssl.templates import client_data

TIMEOUT_S = 2
STEPS = 60_000  # More than half a second for a client.
BEGUN_S = 0.2
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


def build_process():
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
  process = PROCESSES['fedavg'].build(
    model,
    data_spec=client_data.ClientDataSpec(
      client_data.image_element_spec((2,), dtype=tf.float32)
    ),
    views=views.PlainViews(),
    batch_size=2,
    local_epochs=1,
  )
  reader = tff.tensorflow.computation(_examples, np.int32)
  return client_reader.compose_with_reader(process, reader)


@pytest.fixture(scope='module')
def process():
  return build_process()


@pytest.fixture(scope='module')
def expected(process):
  """The first round on one worker."""
  with installed(workers.build_context(threads_per_op=1)):
    return process.next(process.initialize(), KEYS)


@pytest.fixture
def pair():
  started = [workers.LocalWorker(threads_per_op=1) for _ in range(2)]
  yield started
  for worker in started:
    worker.stop()


def installed(context):
  return tff.framework.get_context_stack().install(context)


def address(worker):
  return f'127.0.0.1:{worker.port}'


def reach(*started):
  return workers.build_context(
    addresses=[address(worker) for worker in started],
    answer_timeout_s=TIMEOUT_S,
  )


def cpu_seconds(worker):
  return sum(psutil.Process(worker.pid).cpu_times()[:2])


def amid_its_work(worker, signal_number):
  """Sends a signal once the worker has begun to compute for a client."""
  before = cpu_seconds(worker)

  def run():
    while cpu_seconds(worker) < before + BEGUN_S:
      time.sleep(0.01)
    os.kill(worker.pid, signal_number)

  threading.Thread(target=run, daemon=True).start()


def assert_equal_rounds(actual, expected):
  counts = actual.metrics['client_work']['clients']
  assert counts == expected.metrics['client_work']['clients']
  assert counts['participating'] == len(KEYS)
  for one, other in zip(
    tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True
  ):
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_killed_worker_is_replaced_by_the_living(process, expected, pair):
  with installed(reach(*pair)):
    state = process.initialize()
    process.next(state, KEYS[:2])  # Compilation is no part of the measure.
    amid_its_work(pair[1], signal.SIGKILL)
    result = process.next(state, KEYS)
    assert pair[1].has_ended()
    assert_equal_rounds(result, expected)
    assert_equal_rounds(process.next(state, KEYS), expected)


def test_a_hanging_worker_is_given_up_and_comes_back(process, expected, pair):
  with installed(reach(*pair)):
    state = process.initialize()
    process.next(state, KEYS[:2])
    began = time.monotonic()
    amid_its_work(pair[0], signal.SIGSTOP)
    result = process.next(state, KEYS)
    seconds = time.monotonic() - began
    assert_equal_rounds(result, expected)
    assert TIMEOUT_S < seconds < TIMEOUT_S + 30
    os.kill(pair[0].pid, signal.SIGCONT)
    time.sleep(TIMEOUT_S + 0.5)  # A lost worker is not asked before.
    before = cpu_seconds(pair[0])
    assert_equal_rounds(process.next(state, KEYS), expected)
    assert cpu_seconds(pair[0]) - before > BEGUN_S


def test_none_left(process, pair):
  with installed(reach(*pair)):
    state = process.initialize()
    process.next(state, KEYS[:2])
    for worker in pair:
      amid_its_work(worker, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match='No TFF worker is left') as caught:
      process.next(state, KEYS)
    assert time.monotonic() - began < TIMEOUT_S + 15
    for worker in pair:
      assert address(worker) in str(caught.value)


def test_a_worker_started_again_at_its_address(pair, monkeypatch):
  comp = tff.tensorflow.computation(lambda x: x + 1, np.int32)
  context = reach(pair[0])
  with installed(context):
    assert comp(1) == 2
    pair[0].stop()
    with pytest.raises(RuntimeError, match='No TFF worker is left'):
      comp(1)
    monkeypatch.setattr(portpicker, 'pick_unused_port', lambda: pair[0].port)
    again = workers.LocalWorker()
    time.sleep(TIMEOUT_S + 0.5)
    assert comp(1) == 2
    again.stop()


def test_two_workers_compute_side_by_side(process, expected):
  """Each part runs during the other, and burns processor time of its own."""
  spans = []

  class Recorded(tff.framework.SyncContext):
    def __init__(self):
      self._context = workers.build_context(threads_per_op=1)

    def invoke(self, comp, arg):
      began = time.monotonic()
      result = self._context.invoke(comp, arg)
      spans.append((began, time.monotonic()))
      return result

  context = DividedContext([Member('a', Recorded()), Member('b', Recorded())])
  with installed(context):
    state = process.initialize()
    process.next(state, KEYS[:2])
    spans.clear()
    result = process.next(state, KEYS)
  assert_equal_rounds(result, expected)
  (start, end), (other_start, other_end) = spans[:2]
  overlap = min(end, other_end) - max(start, other_start)
  assert overlap > 0.5 * min(end - start, other_end - other_start)


def test_unreachable_workers_are_found_at_the_start(pair):
  os.kill(pair[1].pid, signal.SIGSTOP)
  ports = [pair[1].port, portpicker.pick_unused_port()]
  for port in ports:
    began = time.monotonic()
    with pytest.raises(
      RuntimeError, match=f'127.0.0.1:{port} does not answer within 2 s'
    ):
      workers.build_context(
        addresses=[address(pair[0]), f'127.0.0.1:{port}'],
        answer_timeout_s=TIMEOUT_S,
      )
    assert time.monotonic() - began < TIMEOUT_S + 5


def test_every_worker_must_read_the_store(pair, tmp_path):
  context = reach(*pair)
  path = tmp_path / 'store [1]*'
  with pytest.raises(RuntimeError, match='cannot read .*store.*the same path'):
    client_reader.check_readable(path, context)
  path.write_bytes(b'some bytes')
  client_reader.check_readable(path, context)


def test_addresses_exclude_local_workers():
  with pytest.raises(ValueError, match='num_workers=2 .* give one'):
    workers.build_context(2, addresses=['127.0.0.1:1'])
  with pytest.raises(ValueError, match='answer_timeout_s=0 must be at least'):
    workers.build_context(addresses=['127.0.0.1:1'], answer_timeout_s=0)
