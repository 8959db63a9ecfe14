"""Bytes of messages by hand; ratios of gradients against numpy."""

import collections
import functools

import costs
import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from diversities import NORMS, ratio

from tff_ssl import metrics, optimizers, randomness, testing
from tff_ssl.algorithms import PROCESSES
from tff_ssl.augmentation import views
from tff_ssl.simulation import client_reader
from tff_ssl.templates import client_data, client_task

ModelWeights = tff.learning.models.ModelWeights

_ELEMENTS = client_data.image_element_spec((3,), dtype=tf.float32)
_GROUPS = 2
# The stack of two group models: a vector and a scalar, and a moving statistic.
_STACK = ModelWeights(
  [
    np.array([[1, 2], [-3, 0.5]], np.float32),
    np.array([0.5, -2], np.float32),
  ],
  [np.array([9, 9], np.float32)],
)
_WEIGHTS_TYPE = tff.types.to_type(
  ModelWeights([(np.float32, [2, 2]), (np.float32, [2])], [(np.float32, [2])])
)
# Mean of x per client: the gradient is that plus the start weights.
_CLIENTS = {
  # client: (group, examples)
  4: (0, [[1, 0, 2], [3, -2, 0]]),
  5: (1, [[0, 4, 1]]),
  6: (1, [[-1, 1, 1], [2, 2, -3], [5, 0, 2]]),
}


def _start(weights, row):
  return tf.nest.map_structure(lambda stack: stack[row], weights)


def _client_gradient(task):
  start = _start(task.weights, tf.clip_by_value(task.group, 0, _GROUPS - 1))
  size = tf.cast(tf.shape(task.examples['x'])[0], tf.float32)
  mean = tf.math.divide_no_nan(tf.reduce_sum(task.examples['x'], 0), size)
  return [mean[:2] + start.trainable[0], mean[2] + start.trainable[1]]


def _local_update(task):
  """The delta is -rate * gradient, plus the client's number on the scalar."""
  rate = task.hparams['learning_rate']
  first, second = _client_gradient(task)
  own = tf.cast(task.client + task.round + task.seed, tf.float32)
  update = client_task.LocalUpdate(
    ModelWeights([-rate * first, own - rate * second], [tf.constant(1e6)]),
    tf.constant(1.0),
    client_task.TrainingResult(
      None, (), collections.OrderedDict(loss=tf.stack([1.0, 1.0]))
    ),
    (task.group < 0) | (task.group >= _GROUPS),
  )
  return update, task.group


def _server_gradient(task):
  mean = tf.nest.map_structure(
    lambda stack: tf.reduce_mean(stack, 0), task.weights
  )
  return mean.trainable


def _server_update(task):
  # Distinguishes the four that the server is told.
  momentum = task.optimizer_state['momentum']
  number = tf.cast(task.round * 2 + task.seed * 3, tf.float32)
  return [momentum, number]


def _build(**arguments):
  defaults = {
    'local_update': _local_update,
    'client_gradient': _client_gradient,
    'server_update': _server_update,
    'server_gradient': _server_gradient,
    'data_spec': client_data.ClientDataSpec(_ELEMENTS, in_context=True),
    'weights_type': _WEIGHTS_TYPE,
    'initial_hparams': lambda: collections.OrderedDict(
      learning_rate=tf.constant(0.5)
    ),
    'num_groups': _GROUPS,
    'server_optimizer_type': tff.types.to_type(
      collections.OrderedDict(momentum=(np.float32, [2]))
    ),
  }
  return metrics.build_gradient_diversity(**{**defaults, **arguments})


def _state(with_optimizer=True):
  state = collections.OrderedDict(
    weights=_STACK, round=np.int32(7), seed=np.int32(2)
  )
  if with_optimizer:
    state['server_optimizer'] = collections.OrderedDict(
      momentum=np.array([-4, 3], np.float32)
    )
  return state


def _client(client, group, x):
  x = np.asarray(x, np.float32).reshape([-1, 3])
  examples = collections.OrderedDict(x=x, y=np.full(len(x), -1, np.int32))
  return federations.in_context(examples, client, group)


def _clients():
  return [_client(client, *rest) for client, rest in _CLIENTS.items()]


def _vectors_by_numpy():
  """Returns per kind the clients' vectors `[3, 3]` and the server's."""
  gradients, updates = [], []
  for client, (group, x) in _CLIENTS.items():
    start = np.append(_STACK.trainable[0][group], _STACK.trainable[1][group])
    gradient = np.mean(x, 0) + start
    gradients.append(gradient)
    updates.append(-0.5 * gradient + [0, 0, client + 7 + 2])
  server_gradient = [-1, 1.25, -0.75]
  server_update = [-4, 3, 7 * 2 + 2 * 3]
  return {
    'gradient': (np.array(gradients), np.array(server_gradient)),
    'update': (np.array(updates), np.array(server_update)),
  }


def _expected():
  """All metrics of the three clients, by numpy."""
  expected = {'diversity/num_clients': 3}
  for kind, (users, server) in _vectors_by_numpy().items():
    everyone = np.vstack([users, server])
    for name, how in NORMS.items():
      expected[f'diversity/{kind}_{name}'] = ratio(users, *how)
      expected[f'diversity/{kind}_{name}_with_server'] = ratio(everyone, *how)
    first = np.vstack([users[:1], server])
    second = np.vstack([users[1:], server])
    expected[f'diversity/{kind}_paper_code'] = (
      2 * ratio(first) + 3 * ratio(second)
    ) / 2
  return expected


@pytest.fixture(scope='module')
def measure(tff_context):
  return _build()


@pytest.fixture(scope='module')
def measure_users(tff_context):
  return _build(
    server_update=None, server_gradient=None, server_optimizer_type=None
  )


@pytest.fixture(scope='module')
def result(measure):
  return dict(measure(_state(), _clients()))


def _assert_close(actual, expected):
  assert set(actual) == set(expected)
  for name, value in expected.items():
    np.testing.assert_allclose(
      actual[name], value, rtol=2e-5, err_msg=name, equal_nan=True
    )


@pytest.mark.dear
def test_three_clients_in_two_groups_and_a_server(result):
  _assert_close(result, _expected())


def test_the_sixteen_variants_are_all_there_and_differ(result):
  variants = [
    f'diversity/{kind}_{norm}_{power}{who}'
    for kind in ('gradient', 'update')
    for norm in ('l2', 'l1')
    for power in ('squared', 'plain')
    for who in ('', '_with_server')
  ]
  assert len({round(float(result[name]), 5) for name in variants}) == 16
  assert all(value.dtype == np.float32 for value in result.values())


def test_without_a_server(measure_users):
  result = measure_users(_state(with_optimizer=False), _clients())
  expected = {
    name: value
    for name, value in _expected().items()
    if not name.endswith('_with_server')
  }
  for kind, (users, _) in _vectors_by_numpy().items():
    # The group of one client has 1 * 1.
    expected[f'diversity/{kind}_paper_code'] = (1 + 2 * ratio(users[1:])) / 2
  _assert_close(result, expected)


def test_the_order_of_clients_does_not_matter(measure, result):
  _assert_close(measure(_state(), _clients()[::-1]), result)


def test_clients_that_a_round_leaves_out_do_not_count(measure, result):
  others = [
    _client(1, 0, []),
    _client(2, 1, [[np.nan, 1, 1]]),
    _client(3, 0, [[1, np.inf, 1]]),
    _client(8, -1, [[1, 1, 1]]),
    _client(9, _GROUPS, [[1, 1, 1]]),
  ]
  _assert_close(measure(_state(), others + _clients()), result)


@pytest.mark.parametrize('copies', [1, 4])
def test_one_client_and_copies_of_it(measure_users, copies):
  """Squared 1/n, plain 1; the code's is n times 1/n."""
  clients = _clients()[1:2] * copies
  result = measure_users(_state(with_optimizer=False), clients)
  expected = dict.fromkeys(result, 1)
  expected['diversity/num_clients'] = copies
  for kind in ('gradient', 'update'):
    for norm in ('l2', 'l1'):
      expected[f'diversity/{kind}_{norm}_squared'] = 1 / copies
  _assert_close(result, expected)


def test_without_any_usable_client_all_is_nan(measure_users):
  result = measure_users(_state(with_optimizer=False), [_client(0, 0, [])])
  assert result.pop('diversity/num_clients') == 0
  assert np.isnan(list(result.values())).all()


class TestOneGroup:
  """A process with a real model, one group, data read inside TFF."""

  _SIZES = (4, 0, 5, 7)

  @staticmethod
  def _examples(index):
    """Client `index` has `index` examples, which differ between clients."""
    rows = tf.range(index, dtype=tf.float32)[:, tf.newaxis]
    columns = tf.range(3, dtype=tf.float32)
    x = tf.sin(tf.cast(index, tf.float32) * 5 + rows * 2 + columns)
    labels = tf.range(index, dtype=tf.int32) % 2
    return tf.data.Dataset.from_tensors(collections.OrderedDict(x=x, y=labels))

  @pytest.fixture(scope='class')
  def result(self, tff_context):
    """SGD with one step on all examples: the update is -rate * gradient."""
    sgd = optimizers.build_nesterov_sgd(0.3, momentum=0)
    process = PROCESSES['grouping_supervised'].build(
      softmax_regression.model(
        3, 2, lambda seed: ModelWeights(self._weights(), [])
      ),
      num_groups=1,
      server_data=tff.tensorflow.computation(lambda: self._examples(6)),
      data_spec=client_data.ClientDataSpec(_ELEMENTS),
      views=views.PlainViews(),
      client_optimizer=sgd,
      batch_size=16,
      local_epochs=1,
      server_optimizer=sgd,
      server_batch_size=6,
      server_steps=1,
    )
    measure = client_reader.compose_computation_with_reader(
      metrics.build_process_diversity(process),
      tff.tensorflow.computation(self._examples, np.int32),
    )
    state = metrics.measured_state(
      process, process.initialize(), round_num=1, seed=5
    )
    return measure(
      state, [np.array([size, 0, 0, 0], np.int32) for size in self._SIZES]
    )

  @staticmethod
  def _weights():
    rng = np.random.default_rng(6)
    return [
      rng.normal(size=[3, 2]).astype(np.float32),
      rng.normal(size=[2]).astype(np.float32),
    ]

  def _gradient_by_numpy(self, size):
    batch = next(iter(self._examples(size)))
    x, y = batch['x'].numpy(), batch['y'].numpy()
    return np.append(*softmax_regression.gradient(self._weights(), x, y))

  @pytest.mark.parts
  def test_gradients_are_those_of_the_model(self, result):
    users = np.stack(
      [self._gradient_by_numpy(size) for size in self._SIZES if size]
    )
    everyone = np.vstack([users, self._gradient_by_numpy(6)])
    for name, how in NORMS.items():
      name = f'diversity/gradient_{name}'
      np.testing.assert_allclose(result[name], ratio(users, *how), rtol=1e-4)
      np.testing.assert_allclose(
        result[f'{name}_with_server'], ratio(everyone, *how), rtol=1e-4
      )
    assert result['diversity/num_clients'] == 3

  @pytest.mark.parts
  def test_one_plain_step_has_the_diversity_of_the_gradient(self, result):
    for name, value in result.items():
      if '/gradient' in name:
        other = name.replace('/gradient', '/update')
        np.testing.assert_allclose(result[other], value, rtol=1e-4)

  @pytest.mark.parts
  def test_the_codes_number_is_n_times_eq_1_with_one_group(self, result):
    for kind in ('gradient', 'update'):
      np.testing.assert_allclose(
        result[f'diversity/{kind}_paper_code'],
        4 * result[f'diversity/{kind}_l2_squared_with_server'],
        rtol=1e-5,
      )


def test_server_seed_is_that_of_the_servers_training():
  task = metrics.ServerTask(None, tf.constant(3), tf.constant(4), None)
  np.testing.assert_array_equal(
    task.server_seed, randomness.server_seed(tf.constant(4), tf.constant(3))
  )


def _terms(vector):
  """The terms of a flat vector, given as a 2x2 matrix and the rest."""
  parts = (vector[:4].reshape(2, 2), vector[4:])
  return metrics.terms([tf.constant(p, tf.float32) for p in parts])


def _total(vectors):
  return functools.reduce(metrics.add, map(_terms, vectors))


def _ratios(vectors):
  ratios = metrics.ratios(_total(np.asarray(vectors, float)))
  return {name: float(value) for name, value in ratios.items()}


@pytest.mark.parametrize('num_participants', [1, 2, 7])
def test_ratios_of_random_vectors_equal_numpys(num_participants):
  vectors = np.random.default_rng(0).normal(1, 2, [num_participants, 7])
  actual = _ratios(vectors)
  assert list(actual) == list(NORMS)
  for name, how in NORMS.items():
    assert actual[name] == pytest.approx(ratio(vectors, *how), rel=1e-5)


@pytest.mark.parametrize(
  'vectors, expected',
  [
    # One participant.
    ([[3, -1, 0, 2, 5]], (1, 1, 1, 1)),
    # Equal ones: the squared are 1/n, the plain 1.
    ([[1, -2, 3, -4, 5]] * 4, (0.25, 1, 0.25, 1)),
    # Orthogonal ones of equal norm, for n = 5 in the l2-norm: 5/5 and
    # 5/sqrt(5); l1 adds up like equal ones.
    (3 * np.eye(5), (1, 5**0.5, 0.2, 1)),
  ],
)
def test_known_geometries(vectors, expected):
  expected = dict(zip(NORMS, expected, strict=True))
  assert _ratios(vectors) == pytest.approx(expected)


def test_vectors_of_one_sign_have_plain_l1_diversity_one():
  vectors = -np.random.default_rng(1).uniform(size=[6, 8])
  assert _ratios(vectors)['l1_plain'] == pytest.approx(1)


def test_ratios_do_not_depend_on_scale_or_order():
  vectors = np.random.default_rng(2).normal(size=[5, 6])
  expected = _ratios(vectors)
  assert _ratios(1000 * vectors) == pytest.approx(expected, rel=1e-5)
  assert _ratios(vectors[[3, 0, 4, 2, 1]]) == pytest.approx(expected, rel=1e-5)


def test_zero_vectors_are_nan_and_cancelling_ones_infinite():
  assert np.isnan(list(_ratios(np.zeros([3, 5])).values())).all()
  opposite = np.outer([1, -1], np.ones(5))
  assert np.isposinf(list(_ratios(opposite).values())).all()


class TestMeanScaledRatio:
  _GROUPS = [
    np.random.default_rng(3).normal(size=[size, 6]) for size in (2, 4, 3)
  ]
  _SERVER = np.random.default_rng(4).normal(size=6)

  def _mean(self, groups, server=None):
    rows = [
      _total(group if len(group) else np.zeros([1, 6])) for group in groups
    ]
    counts = tf.constant([len(group) for group in groups], tf.float32)
    stacked = tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *rows)
    return float(
      metrics.mean_scaled_ratio(
        stacked, counts, None if server is None else _terms(server)
      )
    )

  @staticmethod
  def _scaled(vectors):
    return len(vectors) * ratio(vectors)

  def test_equals_numpys(self):
    expected = np.mean([self._scaled(group) for group in self._GROUPS])
    assert self._mean(self._GROUPS) == pytest.approx(expected, rel=1e-5)

  def test_the_server_counts_in_every_group(self):
    expected = np.mean(
      [self._scaled(np.vstack([g, self._SERVER])) for g in self._GROUPS]
    )
    assert self._mean(self._GROUPS, self._SERVER) == pytest.approx(
      expected, rel=1e-5
    )

  @pytest.mark.parametrize('server', [None, _SERVER])
  def test_an_empty_group_is_left_out(self, server):
    with_empty = [self._GROUPS[0], np.zeros([0, 6]), self._GROUPS[2]]
    assert self._mean(with_empty, server) == pytest.approx(
      self._mean(with_empty[::2], server)
    )

  def test_is_nan_without_clients(self):
    assert np.isnan(self._mean([np.zeros([0, 6])] * 2, self._SERVER))


# 64-24-10: kernels and biases, 4 bytes each.
_MODEL = 4 * (64 * 24 + 24 + 24 * 10 + 10)
_DECODER = 4 * (24 * 64 + 64)
_ROUND_AND_SEED = 2 * 4
_HPARAMS = 3 * 4
_COUNTS_OF_CLIENTS = 4 * 4
# Passes, and examples.
_COUNTS_OF_WORK = 3 * 8


@pytest.mark.parametrize(
  'name, weights, up_besides',
  costs.rest_in(
    'parts',
    [
      # A weight; loss and accuracy, each a numerator and a denominator.
      ('fedavg', _MODEL, 4 + 2 * 8),
      # Two group models; a weight for each and one for all; three metrics.
      ('grouping', 2 * _MODEL, 2 * 4 + 4 + 3 * 8),
      ('ssjo', _MODEL + _DECODER, 4 + 3 * 8),
    ],
  ),
)
def test_bytes_are_those_of_weights_and_little_more(
  name, weights, up_besides, tff_context
):
  problem = testing.TinyProblem(PROCESSES[name])
  measured = metrics.measure_communication(problem.process)
  assert measured.down == weights + _ROUND_AND_SEED + _HPARAMS
  counts = _COUNTS_OF_CLIENTS + _COUNTS_OF_WORK
  assert measured.up == weights + up_besides + counts


def test_the_size_of_a_model_is_that_of_its_arrays(tff_context):
  weights = (
    testing.TinyProblem(PROCESSES['fedavg']).build_model().initial_weights(0)
  )
  assert sum(np.asarray(w).nbytes for w in weights.trainable) == _MODEL
