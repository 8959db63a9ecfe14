"""A process with a reader equals the process that is given the data."""

import collections

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close

from tff_ssl import objectives
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.metrics import measure_communication
from tff_ssl.simulation import client_reader, client_sampling
from tff_ssl.templates import client_data

_FEATURES, _CLASSES = 3, 2
_IN_CONTEXT = federations.data_spec((_FEATURES,), in_context=True)


def _features(index, size):
  """Features of a client from its index; TensorFlow and numpy alike."""
  rows = tf.range(size, dtype=tf.float32)[:, tf.newaxis]
  columns = tf.range(_FEATURES, dtype=tf.float32)
  return tf.sin(tf.cast(index, tf.float32) + rows * 2 + columns)


def _examples(index):
  """Client `index` has `index` examples: client 0 has none."""
  x = _features(index, index)
  labels = tf.range(index, dtype=tf.int32) % _CLASSES
  return tf.data.Dataset.from_tensors(collections.OrderedDict(x=x, y=labels))


@pytest.fixture(scope='module')
def reader():
  return tff.tensorflow.computation(_examples, np.int32)


@pytest.fixture(scope='module')
def model():
  shapes = ([_FEATURES, _CLASSES], [_CLASSES])
  return softmax_regression.model(
    _FEATURES,
    _CLASSES,
    lambda seed: tff.learning.models.ModelWeights(
      [np.full(shape, 0.1 * seed, np.float32) for shape in shapes], []
    ),
  )


def _keys(*pairs):
  """Keys of clients and groups, in slots as they come."""
  return [
    np.array([client, group, slot, group], np.int32)
    for slot, (client, group) in enumerate(pairs)
  ]


@pytest.mark.parts
def test_grouping_with_keys_equals_grouping_with_data(
  tff_context, model, reader
):
  process = PROCESSES['grouping'].build(
    model,
    server_data=tff.tensorflow.computation(lambda: _examples(tf.constant(6))),
    data_spec=_IN_CONTEXT,
    views=views.PlainViews(),
    num_groups=2,
    threshold=0.5,
    batch_size=2,
    local_steps=2,
    server_steps=2,
  )
  with_keys = client_reader.compose_with_reader(process, reader)
  assert with_keys.next.type_signature.parameter[1] == tff.FederatedType(
    tff.TensorType(np.int32, [4]), tff.CLIENTS
  )
  # Who reads where it trains is sent nothing else, and sends nothing else.
  without = measure_communication(process)
  assert measure_communication(with_keys) == without
  assert measure_communication(with_keys, with_keys.form) == without
  keys = _keys((4, 1), (7, 0), (0, 0), (3, 1))
  data = [
    collections.OrderedDict(
      examples=_examples(int(client)),
      context=tf.data.Dataset.from_tensors(
        collections.OrderedDict(client=client, group=group)
      ),
    )
    for client, group, _, _ in keys
  ]
  ours, theirs = with_keys.initialize(), process.initialize()
  for _ in range(2):
    ours, metrics = with_keys.next(ours, keys)
    theirs, expected = process.next(theirs, data)
  assert_close(ours, theirs, atol=1e-6)
  for part in ('train', 'clients'):
    ours, theirs = (each['client_work'][part] for each in (metrics, expected))
    assert_close(ours, theirs, atol=1e-6)
  assert metrics['client_work']['clients']['empty'] == 1
  np.testing.assert_array_equal(metrics['aggregator']['group_weights'], [1, 2])


@pytest.mark.parts
def test_slots_travel_where_the_process_wants_them(tff_context, model, reader):
  process = PROCESSES['grouping_client_labels'].build(
    model,
    data_spec=federations.data_spec((_FEATURES,), in_context=True, num_slots=3),
    views=views.PlainViews(),
    client_objective=objectives.Supervised(views.PlainViews()),
    num_groups=2,
    start_model='slot',
    client_momentum='slot',
    batch_size=2,
    local_steps=2,
  )
  with_keys = client_reader.compose_with_reader(process, reader)
  keys = np.array([[4, 1, 2, 0], [3, 0, 7, 0], [5, 0, 0, 2]], np.int32)
  state, metrics = with_keys.next(with_keys.initialize(), list(keys))
  # Slot 7 and start group 2 do not exist.
  assert metrics['client_work']['clients']['invalid'] == 2
  assert metrics['client_work']['clients']['participating'] == 1
  (velocity,) = [
    leaf
    for leaf in map(np.asarray, tf.nest.flatten(state.client_work['slots']))
    if leaf.ndim == 3  # Of the kernel; there are numbers besides.
  ]
  assert velocity[2].any() and not velocity[:2].any()


class TestComputation:
  """A sum of what the server holds and the clients' data."""

  @pytest.fixture(scope='class')
  def computation(self, tff_context):
    @tff.tensorflow.computation(np.float32, _IN_CONTEXT.type)
    def measure(factor, data):
      examples, context = client_data.read_context(data, _IN_CONTEXT)
      group = tf.cast(context['group'], tf.float32)
      return factor * tf.reduce_sum(examples['x']) + 100 * group

    @tff.tensorflow.computation(np.float32, np.float32)
    def conclude(factor, total):
      return collections.OrderedDict(total=total, factor=factor)

    @tff.federated_computation(
      tff.FederatedType(np.float32, tff.SERVER),
      tff.FederatedType(_IN_CONTEXT.type, tff.CLIENTS),
    )
    def computation(factor, data):
      sent = tff.federated_broadcast(factor)
      total = tff.federated_sum(tff.federated_map(measure, (sent, data)))
      return tff.federated_map(conclude, (factor, total))

    return computation

  def test_reads_the_clients_of_the_keys(self, computation, reader):
    with_keys = client_reader.compose_computation_with_reader(
      computation, reader
    )
    actual = with_keys(np.float32(2), _keys((4, 1), (0, 0), (3, 1)))
    sums = sum(_features(index, index).numpy().sum() for index in (4, 3))
    assert list(actual) == ['total', 'factor']
    np.testing.assert_allclose(actual['total'], 2 * sums + 200, rtol=1e-6)
    assert actual['factor'] == 2

  def test_a_reader_of_other_data_is_refused(self, computation):
    @tff.tensorflow.computation(np.int32)
    def wrong(index):
      return tf.data.Dataset.from_tensors(tf.fill([2], index))

    with pytest.raises(TypeError, match='data_spec of the reader'):
      client_reader.compose_computation_with_reader(computation, wrong)


class TestPlainData:
  @pytest.fixture(scope='class')
  def process(self, tff_context, model):
    return PROCESSES['fedavg'].build(
      model,
      data_spec=federations.data_spec((_FEATURES,)),
      views=views.PlainViews(),
      batch_size=4,
      local_epochs=1,
    )

  @pytest.mark.dear
  def test_equals_the_process_with_data(self, process, reader):
    with_keys = client_reader.compose_with_reader(process, reader)
    ours, _ = with_keys.next(with_keys.initialize(), _keys((5, 0), (2, 0)))
    theirs, _ = process.next(process.initialize(), [_examples(5), _examples(2)])
    for found, expected in (
      (ours, theirs),
      (with_keys.get_model_weights(ours), process.get_model_weights(theirs)),
      (with_keys.get_hparams(ours), process.get_hparams(theirs)),
    ):
      assert_close(found, expected, atol=1e-6)

  def test_a_reader_of_other_data_is_refused(self, process):
    @tff.tensorflow.computation(np.int32)
    def wrong(index):
      return tf.data.Dataset.from_tensors(
        collections.OrderedDict(x=tf.zeros([2, 9]), y=tf.fill([2], index))
      )

    with pytest.raises(TypeError, match='data_spec of the reader'):
      client_reader.compose_with_reader(process, wrong)


_SOURCE = {'num_clients': 20, 'num_groups': 3, 'seed': 4}


def _sample(round_num, **more):
  return client_sampling.sample_keys(
    **_SOURCE, **more, clients_per_round=10, round_num=round_num
  )


def test_sources_redeal_as_sampling_does():
  iterator = client_reader.ClientKeySource(**_SOURCE, redeal=True).iterator()
  iterator.select(10)
  restored = client_reader.ClientKeyIterator.from_bytes(iterator.to_bytes())
  for source in (iterator, restored):
    keys = np.stack(source.select(10))
    np.testing.assert_array_equal(keys, _sample(1, redeal=True))


class TestIterator:
  def _iterator(self):
    return client_reader.ClientKeySource(**_SOURCE).iterator()

  def test_selects_round_after_round(self):
    iterator = self._iterator()
    for round_num in range(3):
      np.testing.assert_array_equal(iterator.select(10), _sample(round_num))

  def test_resumes_from_bytes(self):
    iterator = self._iterator()
    iterator.select(10)
    restored = client_reader.ClientKeyIterator.from_bytes(iterator.to_bytes())
    assert restored == iterator
    np.testing.assert_array_equal(restored.select(10), _sample(1))
    assert restored != iterator
    assert iterator != 'an iterator'

  def test_type_is_that_of_the_keys(self):
    expected = tff.FederatedType(tff.TensorType(np.int32, [4]), tff.CLIENTS)
    source = client_reader.ClientKeySource(num_clients=5)
    assert source.federated_type == expected
    iterator = source.iterator()
    assert iterator.federated_type == expected
    for key in iterator.select(2):
      assert key.shape == (4,) and key.dtype == np.int32

  @pytest.mark.parametrize('k', [None, 0, 2, 21])
  def test_a_refused_selection_does_not_advance_the_round(self, k):
    iterator = self._iterator()
    with pytest.raises(ValueError, match='num_groups=3 and num_clients=20'):
      iterator.select(k)
    assert iterator == self._iterator()

  @pytest.mark.parametrize(
    'changes, name',
    [
      ({'num_clients': 0}, 'num_clients'),
      ({'num_groups': 0}, 'num_groups'),
      ({'seed': -1}, 'seed'),
    ],
  )
  def test_bad_arguments_are_named(self, changes, name):
    with pytest.raises(ValueError, match=name):
      client_reader.ClientKeySource(**{'num_clients': 5, **changes})
