"""Computations in this process and in TFF's worker: the same, or refused."""

import asyncio
import collections
import gc
import signal
import threading
import time
import tracemalloc

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat
from tff_ssl.simulation import contexts, worker_context

FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)
NUMBERS = tff.FederatedType(np.int32, tff.CLIENTS)


@pytest.fixture(scope='module')
def kinds():
  yield {
    kind: contexts.build_context(kind, default_num_clients=3)
    for kind in contexts.KINDS
  }
  worker_context.stop_workers()


@pytest.fixture
def in_process(kinds):
  with tff.framework.get_context_stack().install(kinds['in_process']):
    yield kinds['in_process']


@tff.tensorflow.computation(np.int32)
def double(x):
  return 2 * x


@tff.tensorflow.computation(np.float32)
def counted(x):
  """With a variable, which clients must not share."""
  variable = tf.Variable(0.0)

  @tf.function
  def count():
    for _ in range(3):
      variable.assign_add(x)
    return variable.read_value()

  return count()


@tff.tensorflow.computation(np.int32)
def looked_up(x):
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(
      tf.constant([1, 2, 3]), tf.constant(['one', 'two', 'three'])
    ),
    'none',
  )
  return table.lookup(x)


@tff.tensorflow.computation(tff.SequenceType(np.int32))
def total(rows):
  return rows.reduce(np.int32(0), lambda a, b: a + b)


@tff.tensorflow.computation(np.int32)
def counting(n):
  return tf.data.Dataset.range(tf.cast(n, tf.int64)).map(
    lambda x: tf.cast(x, tf.int32)
  )


@tff.tensorflow.computation(np.float32, np.float32)
def placed(x, y):
  """Beside a parameter that the result does not need."""
  with tf.compat.v1.colocate_with(y):
    return tf.nn.l2_loss(x)


@tff.tensorflow.computation(np.int32, np.int32)
def waiting(x, y):
  with tf.control_dependencies([y]):
    return tf.constant(3) + x


@tff.federated_computation(FLOATS, tff.FederatedType(np.float32, tff.SERVER))
def everything(values, server):
  sent = tff.federated_broadcast(server)
  scaled = tff.federated_map(
    tff.tensorflow.computation(lambda x, y: x * y), (values, sent)
  )
  mean = tff.federated_mean(scaled, values)
  again = tff.federated_map(
    tff.tensorflow.computation(lambda x, y: x - y),
    (scaled, tff.federated_broadcast(mean)),
  )
  return collections.OrderedDict(
    each=again,
    equal=sent,
    least=tff.federated_min(values),
    most=tff.federated_max(again),
    of_variable=tff.federated_sum(tff.federated_map(counted, values)),
    server=tff.federated_map(
      tff.tensorflow.computation(lambda x, y: (x + y, b'text')), (server, mean)
    ),
    zipped=tff.federated_zip((values, again)),
  )


@tff.federated_computation
def without_arguments():
  placed = tff.federated_value(np.int32(4), tff.CLIENTS)
  evaluated = tff.federated_eval(
    tff.tensorflow.computation(lambda: np.int32(5)), tff.CLIENTS
  )
  return placed, evaluated, tff.federated_sum(evaluated)


@tff.federated_computation(NUMBERS)
def of_sequences(numbers):
  sets = tff.federated_map(counting, numbers)
  return sets, tff.federated_map(total, sets)


@tff.federated_computation(
  tff.FederatedType(tff.TensorType(np.int32, [2]), tff.CLIENTS),
  tff.FederatedType(np.int32, tff.SERVER),
  tff.FederatedType(tff.TensorType(np.float32, [4]), tff.SERVER),
)
def selecting(keys, most, rows):
  select = tff.tensorflow.computation(lambda x, key: x[key])
  return tff.federated_select(keys, most, rows, select)


@tff.federated_computation(tff.SequenceType(np.int32))
def over_a_sequence(rows):
  add = tff.tensorflow.computation(lambda a, b: a + b, [np.int32, np.int32])
  doubled = tff.sequence_map(double, rows)
  return doubled, tff.sequence_reduce(doubled, np.int32(1), add)


def _read(value):
  is_dataset = isinstance(value, tf.data.Dataset)
  return list(value.as_numpy_iterator()) if is_dataset else value


@pytest.mark.parametrize(
  'computation, arguments',
  [
    (double, (21,)),
    (waiting, (1, 2)),
    (placed, (2.0, 1.0)),
    (counted, (1.5,)),
    (looked_up, (2,)),
    (looked_up, (9,)),
    (counting, (4,)),
    (total, ([1, 2, 3],)),
    (total, (tf.data.Dataset.from_tensor_slices(np.int32([4, 5])),)),
    (everything, ([1.0, 2.5, 4.0], 2.0)),
    (everything, ([3.0], tf.Variable(1.0))),
    (without_arguments, ()),
    (of_sequences, ([3, 0, 1],)),
    (
      selecting,
      ([np.int32([0, 3]), np.int32([1, 1])], 4, np.float32([5, 6, 7, 8])),
    ),
  ],
)
def test_both_kinds_compute_the_same(kinds, computation, arguments):
  results = {}
  for kind, context in kinds.items():
    with tff.framework.get_context_stack().install(context):
      results[kind] = computation(*arguments)
  ours, theirs = results['in_process'], results['worker']
  assert type(ours) is type(theirs)
  leaves = [
    tf.nest.flatten(tf.nest.map_structure(_read, r)) for r in (ours, theirs)
  ]
  for a, b in zip(*leaves, strict=True):
    assert type(a) is type(b)
    assert a == pytest.approx(b) if isinstance(a, np.generic) else a == b


def test_against_sums_by_hand(in_process):
  result = everything([1.0, 2.0, 5.0], 2.0)
  mean = (1 * 2 + 2 * 4 + 5 * 10) / 8
  assert result['each'] == [2 - mean, 4 - mean, 10 - mean]
  assert result['of_variable'] == 3 * (1 + 2 + 5)
  assert result['server'] == (2 + mean, b'text')
  assert without_arguments() == (4, [5, 5, 5], 15)
  # TFF's worker computes sequences that clients make, and no others.
  doubled, product = over_a_sequence([1, 2])
  assert _read(doubled) == [2, 4] and product == 1 + 2 + 4
  rows = np.float32([5, 6, 7, 8])
  assert _read(selecting([[0, 3], [1, 1]], 4, rows)[0]) == [5, 8]


@pytest.mark.dear
def test_stock_fed_avg_learns_and_equals_the_worker(kinds):
  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [tf.keras.layers.Dense(2, kernel_initializer='zeros', input_shape=[3])]
      ),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=(
        tf.TensorSpec([None, 3], tf.float32),
        tf.TensorSpec([None], tf.int32),
      ),
    )

  process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn, tff.learning.optimizers.build_sgdm(0.1)
  )
  rng = np.random.default_rng(0)
  clients = []
  for size in (5, 8, 3):
    x = rng.normal(size=(size, 3)).astype(np.float32)
    rows = x, np.int32(x[:, 0] > 0)
    clients.append(tf.data.Dataset.from_tensor_slices(rows).batch(2))
  weights = {}
  for kind, context in kinds.items():
    with tff.framework.get_context_stack().install(context):
      state = process.initialize()
      losses = []
      for _ in range(3):
        state, metrics = process.next(state, clients)
        losses.append(metrics['client_work']['train']['loss'])
      assert losses == sorted(losses, reverse=True)
      weights[kind] = process.get_model_weights(state).trainable
  for a, b in zip(*weights.values(), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_r15_an_error_names_the_client_and_ends_the_others(in_process):
  @tff.tensorflow.computation(np.int32)
  def check(x):
    with tf.control_dependencies(
      [tf.debugging.Assert(x < 5, ['this is too large:', x])]
    ):
      return tf.identity(x)

  @tff.federated_computation(NUMBERS)
  def check_all(values):
    return tff.federated_sum(tff.federated_map(check, values))

  with pytest.raises(tf.errors.InvalidArgumentError) as caught:
    check_all([1, 2, 7, 1])
  assert caught.value.message.startswith('At client 3 of 4: ')
  assert 'this is too large' in caught.value.message
  assert check_all([1, 2, 3]) == 6


@tff.tensorflow.computation(np.int32)
def spin(times):
  """Takes a second or so for each of `times`."""
  return tf.while_loop(
    lambda i, _: i < 100_000 * times,
    lambda i, x: (i + 1, tf.sin(x)),
    (0, 1.0),
  )[1]


@tff.federated_computation(NUMBERS)
def spin_all(times):
  return tff.federated_sum(tff.federated_map(spin, times))


class Interrupt(BaseException):
  """What the handler of a signal raises."""


@pytest.mark.parametrize(
  'computation, argument', [(spin, 50), (spin_all, [50] * 3)]
)
def test_a_signal_ends_a_round_at_once(in_process, computation, argument):
  computation(0 if computation is spin else [0])

  def handle(number, frame):
    del number, frame
    raise Interrupt

  before = signal.signal(signal.SIGALRM, handle)
  threads = threading.active_count()
  try:
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    began = time.monotonic()
    with pytest.raises(Interrupt):
      computation(argument)
    assert time.monotonic() - began < 1.3
  finally:
    signal.signal(signal.SIGALRM, before)
  while threading.active_count() > threads:
    time.sleep(0.01)
  assert time.monotonic() - began < 5


def test_what_takes_long_is_told(in_process, monkeypatch, caplog):
  monkeypatch.setattr(in_process, '_warn_after_s', 0.1)
  timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
  # A shell lets what runs in the background ignore it.
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  timer.start()
  try:
    with pytest.raises(KeyboardInterrupt):
      spin_all([0, 50])
  finally:
    signal.signal(signal.SIGINT, before)
  assert 'has taken 0.1 s; it is at client 2 of 2' in caplog.text
  assert 'has taken 0.2 s; it is at client 2 of 2' in caplog.text


def test_contributions_are_added_in_order_and_not_kept(in_process):
  """Sums of floats show the order; the memory, that none is kept."""
  values = np.float32([1e8, 1, -1e8, 1] * 5)

  @tff.federated_computation(FLOATS)
  def sum_of(values):
    return tff.federated_sum(values)

  expected = np.float32(0)
  for value in values:
    expected += value
  assert sum_of(list(values)) == expected != values.astype(float).sum()

  @tff.tensorflow.computation(np.int32)
  def large(x):
    return tf.fill([2**21], tf.cast(x, tf.float32))  # 8 MiB.

  @tff.federated_computation(NUMBERS)
  def sum_of_large(numbers):
    return tff.federated_sum(tff.federated_map(large, numbers))

  most = 0

  def watch():
    nonlocal most
    while not done.wait(0.005):
      most = max(most, psutil.Process().memory_info().rss)

  sum_of_large([1, 2])
  done, before = threading.Event(), psutil.Process().memory_info().rss
  watcher = threading.Thread(target=watch)
  watcher.start()
  assert sum_of_large(list(range(60)))[5] == 60 * 59 / 2
  done.set()
  watcher.join()
  assert most - before < 200 * 2**20 < 60 * 8 * 2**20


@pytest.mark.dear  # All objects of the tests before it are searched.
def test_a_client_leaves_nothing_in_memory(in_process):
  clients = [1.0] * 50
  threads = threading.active_count()

  def traced_after_a_round():
    everything(clients, 1.0)
    while threading.active_count() > threads:  # They end after the round.
      time.sleep(0.01)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]

  everything(clients, 1.0)  # It compiles, and faster so.
  tracemalloc.start()
  try:
    traced = [traced_after_a_round() for _ in range(4)]
  finally:
    tracemalloc.stop()
  # What is left by clients is left each time; other things grow now and then.
  assert np.diff(traced).min() < 80 * len(clients)


def test_what_is_not_needed_any_more_is_released():
  context = contexts.build_context()

  def functions():
    gc.collect()
    return len(compat.eager_context().list_function_names())

  def compute(number):
    @tff.tensorflow.computation(np.int32)
    def add(x):
      return tf.cond(x > 0, lambda: x + number, lambda: x)

    with tff.framework.get_context_stack().install(context):
      assert add(1) == 1 + number

  compute(1)
  before = functions()
  for number in range(5):
    compute(number)
  assert functions() <= before
  assert not context._programs


def test_calls_inside_of_a_graph(in_process):
  with tf.Graph().as_default():
    assert double(4) == 8


@pytest.mark.parametrize('kind', contexts.KINDS)
def test_asynchronous_calls_leave_the_event_loop_free(kind):
  context = contexts.build_context(kind, asynchronous=True)
  assert isinstance(context, tff.framework.AsyncContext)

  async def compute():
    call = asyncio.ensure_future(context.invoke(spin, 1))
    ticks = 0
    while not call.done():
      await asyncio.sleep(0.02)
      ticks += 1
    return call.result(), ticks

  result, ticks = asyncio.run(compute())
  worker_context.stop_workers()
  assert result == pytest.approx(np.sqrt(3 / 1e5), rel=0.01)
  assert ticks > 3


def test_what_is_no_tensorflow_is_refused(in_process):
  @tff.jax.computation(np.int32)
  def of_jax(x):
    return x + 1

  with pytest.raises(NotImplementedError, match="'xla'.*kind='worker'"):
    of_jax(1)


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'kind': 'remote'}, "kind must be one of .*'remote'"),
    ({'device': 'tpu'}, "device must be one of .*'tpu'"),
    ({'device': 'gpu'}, 'TensorFlow sees no GPU'),
    ({'device': 'gpu', 'kind': 'worker'}, "take kind='in_process'"),
    ({'default_num_clients': -1}, 'default_num_clients must be .* >= 0'),
    ({'clients_at_once': 0}, 'clients_at_once must be .* >= 1'),
    ({'threads_per_op': -1}, 'threads_per_op must be .* >= 0'),
  ],
)
def test_refusals(arguments, message):
  with pytest.raises(ValueError, match=message):
    contexts.install_context(**arguments)


def test_s1_nothing_listens_and_nothing_is_started():
  before = psutil.Process().children()
  context = contexts.build_context(clients_at_once=2)
  with tff.framework.get_context_stack().install(context):
    assert spin_all([0, 0]) == 2
  assert psutil.Process().children() == before
  assert not [
    one
    for one in psutil.Process().connections(kind='tcp')
    if one.status == psutil.CONN_LISTEN
  ]
