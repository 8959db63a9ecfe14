"""Corrupt clients: what they send, and what becomes of a round of them."""

import collections

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.simulation import client_faults, client_reader, client_sampling
from tff_ssl.templates import client_task, faults

ModelWeights = tff.learning.models.ModelWeights

_FEATURES, _CLASSES = 3, 4
_SPEC = federations.data_spec((_FEATURES,), in_context=True, has_faults=True)
_LABELS = np.array([0, 2, -1, 1], np.int32)


def _local_update(task):
  """The delta is the sum of weights and labels; an integer stands beside."""
  total = tf.cast(tf.reduce_sum(task.examples['y']), tf.float32)
  delta = ModelWeights([task.weights.trainable[0] + total], [tf.constant(7)])
  weight = tf.where(task.round > 0, 4.0, 0.0)
  result = client_task.TrainingResult(None, (), {})
  update = client_task.LocalUpdate(delta, weight, result)
  return update, task.group


def _sent(kind, corrupt, round_num=5, others=(), **arguments):
  """Returns the delta of a client with the labels 0, 2, none and 1.

  There may be other kinds of corruption before this one.
  """
  task = client_task.ClientTask(
    weights=ModelWeights([tf.constant([1.0, 2.0])], [tf.constant(0)]),
    round=tf.constant(round_num),
    seed=tf.constant(0),
    hparams={},
    examples=collections.OrderedDict(y=tf.constant(_LABELS)),
    client=tf.constant(3),
    group=tf.constant(1),
    corrupt=tf.constant(corrupt),
    work=tf.constant(100),
  )
  first = ModelWeights([tf.constant([10.0, 20.0])], [tf.constant(0)])
  update, group = faults.with_corrupt_clients(
    _local_update,
    [*map(tff_ssl.Corruption, others), tff_ssl.Corruption(kind, **arguments)],
    _SPEC,
    lambda: first,
  )(task)
  assert group == 1 and not update.invalid
  assert update.weight == (4 if round_num else 0)
  assert update.delta.non_trainable[0] == 7
  return update.delta.trainable[0].numpy()


@pytest.mark.parametrize(
  'kind, arguments, expected',
  [
    # Labels sum up to 2, the weights are (1, 2).
    ('nan', {}, [np.nan, np.nan]),
    ('exploding', {}, [3e6, 4e6]),
    # Finite in float32, which ends at 3.4e38; its square is not.
    ('overflow', {}, np.float32([3e25, 4e25])),
    ('flipped_signs', {}, [-3, -4]),
    # 3, 1, -1, 2 sum up to 5; without L, 2, 0, -1, 1 to 2.
    ('flipped_labels', {'num_labels': 4}, [6, 7]),
    ('flipped_labels', {}, [3, 4]),
    ('stale', {}, [12, 22]),
  ],
)
def test_what_is_sent(kind, arguments, expected):
  np.testing.assert_array_equal(_sent(kind, 1, **arguments), expected)
  np.testing.assert_array_equal(_sent(kind, 0, **arguments), [3, 4])


def test_of_several_kinds_the_number_says_which():
  others = ('exploding', 'stale')
  for number, expected in enumerate(
    ([3, 4], [3e6, 4e6], [12, 22], [-3, -4], [3, 4])
  ):
    sent = _sent('flipped_signs', number, others=others)
    np.testing.assert_array_equal(sent, expected)


def test_who_did_not_train_sends_nothing_wrong():
  for kind in ('nan', 'exploding', 'flipped_signs'):
    np.testing.assert_array_equal(_sent(kind, 1, round_num=0), [3, 4])


@pytest.mark.parametrize(
  'arguments, words',
  [
    (('lazy',), 'kind must be one of'),
    (('nan', 3), 'num_labels=3 has no effect'),
    (('flipped_labels', 0), 'num_labels must be an integer >= 1'),
  ],
)
def test_bad_arguments(arguments, words):
  with pytest.raises(ValueError, match=words):
    tff_ssl.Corruption(*arguments)


def test_client_data_must_say_who_is_corrupt():
  plain = federations.data_spec((_FEATURES,), in_context=True)
  with pytest.raises(TypeError, match='has_faults=True'):
    faults.with_corrupt_clients(
      _local_update, tff_ssl.Corruption('nan'), plain, None
    )
  with pytest.raises(TypeError, match='in_context=True'):
    federations.data_spec((_FEATURES,), has_faults=True)


def _examples(index):
  """Client `index` has `index` examples."""
  rows = tf.range(tf.cast(index, tf.float32))[:, tf.newaxis]
  x = tf.sin(tf.cast(index, tf.float32) + 2 * rows + tf.range(3.0))
  labels = tf.range(index, dtype=tf.int32) % _CLASSES
  return tf.data.Dataset.from_tensors(collections.OrderedDict(x=x, y=labels))


def _model():
  shapes = ([_FEATURES, _CLASSES], [_CLASSES])
  weights = [np.full(shape, 0.1, np.float32) for shape in shapes]
  return softmax_regression.model(
    _FEATURES, _CLASSES, lambda seed: ModelWeights(weights, [])
  )


def _build(name, kind=None, has_faults=True, **arguments):
  process = PROCESSES[name].build(
    _model(),
    data_spec=federations.data_spec(
      (_FEATURES,), in_context=True, has_faults=has_faults
    ),
    views=views.PlainViews(),
    corruption=kind and tff_ssl.Corruption(kind),
    batch_size=2,
    **arguments,
  )
  return client_reader.compose_with_reader(
    process, tff.tensorflow.computation(_examples, np.int32)
  )


def _keys(*clients, corrupt=(), work=100, groups=None):
  """Keys of clients in slots as they come; by default all are in group 0."""
  keys = []
  for slot, client in enumerate(clients):
    group = groups[slot] if groups else 0
    key = np.array([client, group, slot, group], np.int32)
    keys.append(client_faults.append(key, client in corrupt, work))
  return keys


def _trained(process, keys):
  """Returns the flat weights after a round, and the metrics."""
  state, metrics = process.next(process.initialize(), keys)
  weights = process.get_model_weights(state).trainable
  return np.concatenate([w.ravel() for w in weights]), metrics


@pytest.fixture(scope='module')
def sound(tff_context):
  """FedAvg of sound clients, without any sign of faults."""
  return _build('fedavg', has_faults=False, local_steps=4)


def _plain(keys):
  return [key[: len(client_sampling.KEY_FIELDS)] for key in keys]


@pytest.mark.dear
def test_a_corrupt_sign_enters_the_mean_as_numpy_says(sound):
  process = _build('fedavg', 'flipped_signs', local_steps=4)
  keys = _keys(3, 5, 6)
  np.testing.assert_array_equal(
    _trained(process, keys)[0], _trained(sound, _plain(keys))[0]
  )
  # By themselves: each client's change. With equal steps all weigh the same,
  # but for the minibatches of 1 of clients with odd numbers of examples.
  changes, weights = [], []
  for key in _plain(keys):
    after, metrics = _trained(sound, [key])
    changes.append(after - 0.1)
    weights.append(metrics['client_work']['train']['num_examples'])
  expected = 0.1 + np.average(
    np.array(changes) * [[1], [-1], [1]], axis=0, weights=weights
  )
  actual, metrics = _trained(process, _keys(3, 5, 6, corrupt=[5]))
  np.testing.assert_allclose(actual, expected, atol=1e-6)
  assert metrics['client_work']['clients']['participating'] == 3


@pytest.mark.parts
def test_a_client_of_nan_is_as_if_it_were_not_there(sound):
  process = _build('fedavg', 'nan', local_steps=4)
  actual, metrics = _trained(process, _keys(3, 5, 6, corrupt=[5]))
  alone, _ = _trained(sound, _plain(_keys(3, 6)))
  np.testing.assert_array_equal(actual, alone)
  assert metrics['client_work']['clients'] == {
    'participating': 2,
    'empty': 0,
    'non_finite': 1,
    'invalid': 0,
  }


@pytest.mark.parts
def test_a_straggler_takes_a_part_of_its_steps(sound):
  process = _build('fedavg', local_steps=8)
  keys = _keys(3, 6)
  # 8 * 0.5 = 4 steps; 8 * 0.01, rounded up, is one.
  half, metrics = _trained(process, _keys(3, 6, work=50))
  np.testing.assert_array_equal(half, _trained(sound, _plain(keys))[0])
  _, of_least = _trained(process, _keys(6, work=1))
  assert of_least['client_work']['train']['num_examples'] == 2
  assert metrics['client_work']['clients']['participating'] == 2


@pytest.mark.parts
def test_in_groups_the_fault_stays_in_its_group(tff_context):
  """The group of two loses one; its mean is that of the other."""
  process = _build(
    'grouping',
    'nan',
    server_data=tff.tensorflow.computation(lambda: _examples(tf.constant(6))),
    num_groups=2,
    threshold=0.2,
    local_steps=2,
    server_steps=2,
  )
  groups = [0, 1, 0]
  actual, metrics = _trained(
    process, _keys(3, 5, 6, corrupt=[6], groups=groups)
  )
  expected, _ = _trained(process, _keys(3, 5, groups=groups))
  np.testing.assert_array_equal(actual, expected)
  np.testing.assert_array_equal(metrics['aggregator']['group_weights'], [1, 1])
