"""Whole rounds of grouping against numpy (Zhang et al., Eqs. 3-8)."""

import collections
import math

import federations
import numpy as np
import pytest
import softmax_regression
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, assert_same, largest_differences

from tff_ssl import aggregators, objectives, optimizers
from tff_ssl.augmentation import views

_FEATURES, _CLASSES = 4, 3
_CLIENT_RATE, _SERVER_RATE = 0.5, 0.3
_CLIENT_EPOCHS, _SERVER_STEPS = 2, 3
_SERVER_SIZE = 12
_TOLERANCE = 2e-5
_SUPERVISED = objectives.Supervised(views.PlainViews())


def _examples(seed, size):
  arrays = federations.examples(seed, size, (_FEATURES,), _CLASSES)
  return arrays['x'], arrays['y']


_SERVER_SET = _examples(1000, _SERVER_SIZE)


@tff.tensorflow.computation
def _server_data():
  x, y = _SERVER_SET
  return tf.data.Dataset.from_tensors(collections.OrderedDict(x=x, y=y))


@pytest.fixture(scope='module')
def build(tff_context):
  """Builds a process of full-batch plain SGD."""
  return federations.builder(
    'grouping',
    federations.model(_FEATURES, _CLASSES),
    server_data=_server_data,
    data_spec=federations.data_spec((_FEATURES,), in_context=True),
    client_optimizer=optimizers.build_nesterov_sgd(_CLIENT_RATE, momentum=0),
    server_optimizer=optimizers.build_nesterov_sgd(_SERVER_RATE, momentum=0),
    batch_size=64,
    local_epochs=_CLIENT_EPOCHS,
    server_batch_size=_SERVER_SIZE,
    server_steps=_SERVER_STEPS,
  )


# Of clients that nobody gives a number or a group.
_PLAIN = federations.data_spec((_FEATURES,))


def _dataset(x, y):
  return tf.data.Dataset.from_tensors(collections.OrderedDict(x=x, y=y))


def _client(index, group, labelled=False, size=None):
  """Client `index` with 3 + index examples, and its data for the process."""
  x, y = _examples(index, 3 + index if size is None else size)
  y = y if labelled else np.full_like(y, -1)
  arrays = collections.OrderedDict(x=x, y=y)
  return federations.in_context(arrays, index, group)


# The algorithm in numpy, from the equations: a model is a float64 matrix whose
# last row is the bias.


def _softmax_probabilities(weights, x):
  return softmax_regression.probabilities([weights[:-1], weights[-1]], x)


def _gradient(weights, x, labels, mask=1.0):
  parts = [weights[:-1], weights[-1]]
  return np.vstack(softmax_regression.gradient(parts, x, labels, mask))


def _train_on_labels(weights, x, y, rate, steps):
  for _ in range(steps):
    weights = weights - rate * _gradient(weights, x, y)
  return weights


def _train_on_pseudo_labels(weights, x, threshold):
  """Eq. 4 with both views equal to x; returns the sum of the masks too."""
  passed = 0
  for _ in range(_CLIENT_EPOCHS):
    probabilities = _softmax_probabilities(weights, x)
    mask = (probabilities.max(1) >= threshold).astype(float)
    labels = probabilities.argmax(1)
    weights = weights - _CLIENT_RATE * _gradient(weights, x, labels, mask)
    passed += mask.sum()
  return weights, passed


def _server_model(stack):
  x, y = _SERVER_SET
  return _train_on_labels(
    stack.mean(0), x, y, _SERVER_RATE, steps=_SERVER_STEPS
  )


def _eq_7(stack, members, server, server_weight=1.0):
  """Group averages of Eq. 7; `members[i]` are the models w_k of group i."""
  return np.stack(
    [
      (server_weight * server + sum(group, np.zeros_like(server)))
      / (server_weight + len(group))
      for group in members
    ]
  )


def _matrix(weights):
  """The float64 matrix (or stack of matrices) of a process's weights."""
  kernel, bias = (np.asarray(w, np.float64) for w in weights.trainable)
  return np.concatenate([kernel, bias[..., None, :]], axis=-2)


def _stack(state):
  return _matrix(state.global_model_weights)


class TestThreeGroups:
  """S = 3, CRL; groups of 3, 1 and 0 clients."""

  _THRESHOLD = 0.45
  _GROUPS = (0, 1, 0, 0)

  @pytest.fixture(scope='class')
  def process(self, build):
    return build(num_groups=3, threshold=self._THRESHOLD)

  def _numpy_round(self, stack, groups=_GROUPS):
    members = [[], [], []]
    passed = seen = 0
    for index, group in enumerate(groups):
      x, _ = _examples(index, 3 + index)
      trained, mask = _train_on_pseudo_labels(stack[group], x, self._THRESHOLD)
      members[group].append(trained)
      passed, seen = passed + mask, seen + _CLIENT_EPOCHS * len(x)
    return _eq_7(stack, members, _server_model(stack)), passed / seen

  @pytest.mark.dear
  def test_two_rounds_equal_numpy(self, process):
    state = process.initialize()
    expected = _stack(state)
    np.testing.assert_array_equal(expected[0], expected[1])
    clients = [_client(i, group) for i, group in enumerate(self._GROUPS)]
    for _ in range(2):
      state, metrics = process.next(state, clients)
      expected, mask_rate = self._numpy_round(expected)
      np.testing.assert_allclose(_stack(state), expected, atol=_TOLERANCE)
      np.testing.assert_allclose(
        _matrix(process.get_model_weights(state)),
        expected.mean(0),
        atol=_TOLERANCE,
      )
      train = metrics['client_work']['train']
      assert 0 < mask_rate < 1
      assert train['mask_rate'] == pytest.approx(mask_rate, abs=1e-6)
      assert np.isnan(train['pseudo_label_accuracy'])  # no label is known
    # In round 2 groups start from different models, so that this was a test
    # of the start, too.
    assert np.abs(expected[0] - expected[1]).max() > 0.01

  @pytest.mark.parts
  def test_empty_group_becomes_the_server_model(self, process):
    state = process.initialize()
    server = _server_model(_stack(state))
    state, metrics = process.next(state, [_client(0, 0), _client(1, 1)])
    np.testing.assert_allclose(_stack(state)[2], server, atol=_TOLERANCE)
    np.testing.assert_array_equal(
      metrics['aggregator']['group_weights'], [1, 1, 0]
    )

  def test_clients_without_a_group_or_examples_are_left_out(self, process):
    good = [_client(i, group) for i, group in enumerate(self._GROUPS)]
    bad = [_client(5, 3), _client(6, -1), _client(7, 1, size=0)]
    state = process.initialize()
    expected, _ = process.next(state, good)
    actual, metrics = process.next(state, bad + good)
    np.testing.assert_allclose(_stack(actual), _stack(expected), atol=1e-6)
    counts = metrics['client_work']['clients']
    assert counts['invalid'] == 2
    assert counts['empty'] == 1
    assert counts['participating'] == 4
    assert counts['non_finite'] == 0
    np.testing.assert_array_equal(
      metrics['aggregator']['group_weights'], [3, 1, 0]
    )

  def test_server_metrics_are_those_of_its_steps(self, process):
    state = process.initialize()
    x, y = _SERVER_SET
    weights, losses, hits = _stack(state).mean(0), [], []
    for _ in range(_SERVER_STEPS):
      probabilities = _softmax_probabilities(weights, x)
      losses.append(-np.log(probabilities[np.arange(len(y)), y]).mean())
      hits.append((probabilities.argmax(1) == y).mean())
      weights = _train_on_labels(weights, x, y, _SERVER_RATE, steps=1)
    _, metrics = process.next(state, [_client(0, 0)])
    server = metrics['finalizer']['server']
    assert server['loss'] == pytest.approx(np.mean(losses), abs=1e-5)
    assert server['accuracy'] == pytest.approx(np.mean(hits), abs=1e-6)
    assert metrics['finalizer']['update_non_finite'] == 0


class TestServerWeight:
  """FedAvg with the server counted S times against S equal groups."""

  @pytest.fixture(scope='class')
  def control(self, build):
    return build(num_groups=1, server_weight=3.0, threshold=0.45)

  @pytest.mark.parts
  def test_formula_and_equality_with_three_equal_groups(self, build, control):
    grouped = build(num_groups=3, threshold=0.45)
    clients = [_client(i, group) for i, group in enumerate([2, 0, 1, 0, 1, 2])]
    start = control.initialize()
    server = _server_model(_stack(start))
    trained = [
      _train_on_pseudo_labels(_stack(start)[0], _examples(i, 3 + i)[0], 0.45)[0]
      for i in range(6)
    ]
    expected = (3 * server + sum(trained)) / (6 + 3)
    for process in (control, grouped):
      state, _ = process.next(process.initialize(), clients)
      np.testing.assert_allclose(
        _matrix(process.get_model_weights(state)), expected, atol=_TOLERANCE
      )

  @pytest.mark.parts
  def test_one_group_ignores_the_group_of_the_context(self, control):
    start = control.initialize()
    expected, _ = control.next(start, [_client(i, 0) for i in range(3)])
    actual, metrics = control.next(start, [_client(i, 9) for i in range(3)])
    np.testing.assert_array_equal(_stack(actual), _stack(expected))
    assert metrics['client_work']['clients']['invalid'] == 0


@pytest.mark.dear
def test_one_group_is_fedavg_with_a_server_model(build):
  """S = 1 is Eq. 8, here with the true labels at clients (Eq. 6)."""
  process = build(
    num_groups=1,
    client_objective=_SUPERVISED,
    data_spec=_PLAIN,
  )
  state = process.initialize()
  expected = _stack(state)[0]
  for _ in range(2):
    state, metrics = process.next(
      state, [_dataset(*_examples(i, 3 + i)) for i in range(4)]
    )
    trained = [
      _train_on_labels(
        expected, *_examples(i, 3 + i), _CLIENT_RATE, steps=_CLIENT_EPOCHS
      )
      for i in range(4)
    ]
    server = _server_model(expected[None])
    expected = (server + sum(trained)) / (4 + 1)
    np.testing.assert_allclose(_stack(state)[0], expected, atol=_TOLERANCE)
  passes = {'forward_passes', 'backward_passes'}
  train = set(metrics['client_work']['train'])
  assert train == {'loss', 'accuracy', 'num_examples', *passes}


class TestTwoGroups:
  """S = 2, labels at clients, one round of warm-up, momentum at the server."""

  _MOMENTUM = 0.9

  @pytest.fixture(scope='class')
  def process(self, build):
    return build(
      num_groups=2,
      client_objective=_SUPERVISED,
      server_optimizer=optimizers.build_nesterov_sgd(
        _SERVER_RATE, momentum=self._MOMENTUM, nesterov=False
      ),
      server_warmup_rounds=1,
      # Halves its norm, far above that of all changes, in each round.
      model_aggregator=aggregators.GroupMeanFactory(
        2,
        mean_factory=tff.aggregators.clipping_factory(
          tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
            initial_estimate=4096.0,
            target_quantile=0.0,
            learning_rate=math.log(2),
          ),
          tff.aggregators.MeanFactory(),
        ),
      ),
    )

  @pytest.mark.dear
  def test_warmup_then_momentum_over_rounds(self, process):
    clients = [_client(i, g, labelled=True) for i, g in enumerate([0, 1, 1])]
    x, y = _SERVER_SET
    state = process.initialize()
    stack = _stack(state)
    velocity = np.zeros_like(stack[0])
    for round_num in range(3):
      start = stack
      server = start.mean(0)
      for _ in range(_SERVER_STEPS):
        velocity = self._MOMENTUM * velocity + _gradient(server, x, y)
        server = server - _SERVER_RATE * velocity
      members = [[], []]
      if round_num > 0:
        for i, group in enumerate([0, 1, 1]):
          members[group].append(
            _train_on_labels(
              start[group],
              *_examples(i, 3 + i),
              _CLIENT_RATE,
              steps=_CLIENT_EPOCHS,
            )
          )
      stack = _eq_7(start, members, server)
      state, metrics = process.next(state, clients)
      np.testing.assert_allclose(_stack(state), stack, atol=5e-5)
      counts = metrics['client_work']['clients']
      assert counts['participating'] == (0 if round_num == 0 else 3)
      assert counts['invalid'] == 0
      # The aggregator takes nothing from the zeros of the warm-up.
      norm = metrics['aggregator']['values']['clipping_norm']
      assert norm == pytest.approx(2048 if round_num == 2 else 4096)


@pytest.mark.parts
def test_tffs_means_are_taken_within_groups(build):
  """As if they had been put into `GroupMeanFactory` by hand."""
  clipped = tff.aggregators.clipping_factory(
    0.01, tff.aggregators.MeanFactory()
  )
  clients = [_client(i, g, labelled=True) for i, g in enumerate([0, 1, 1])]
  found = []
  for factory in (
    clipped,
    aggregators.GroupMeanFactory(2, mean_factory=clipped),
    None,
  ):
    process = build(num_groups=2, threshold=0.0, model_aggregator=factory)
    found.append(federations.trained(process, clients))
  one, two, plain = found
  assert_same(one, two)
  assert min(largest_differences(one, plain)) > 0


@pytest.mark.parts
def test_medians_are_taken_within_groups(build):
  """Eq. 7 with the median in the place of each member's model."""
  process = build(
    num_groups=2,
    client_objective=_SUPERVISED,
    model_aggregator=aggregators.MedianFactory(),
  )
  groups = [1, 0, 1, 1, 0]
  state = process.initialize()
  start = _stack(state)
  members = [[], []]
  for i, group in enumerate(groups):
    examples = _examples(i, 3 + i)
    members[group].append(
      _train_on_labels(start[group], *examples, _CLIENT_RATE, _CLIENT_EPOCHS)
    )
  medians = [[np.median(m, axis=0)] * len(m) for m in members]
  clients = [_client(i, g, labelled=True) for i, g in enumerate(groups)]
  state, metrics = process.next(state, clients)
  np.testing.assert_allclose(
    _stack(state), _eq_7(start, medians, _server_model(start)), atol=_TOLERANCE
  )
  np.testing.assert_array_equal(metrics['aggregator']['group_weights'], [2, 3])


@pytest.mark.parts
def test_private_groups_divide_by_public_numbers(build):
  """Clients that a clip leaves alone, without noise: Eq. 7 with C / S each."""
  private = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    0.0, 4.0, 100.0
  )
  clients = [_client(i, i % 2, labelled=True) for i in range(4)]
  found = []
  for factory in (
    aggregators.GroupMeanFactory(2, mean_factory=private, clients_per_round=4),
    None,
  ):
    process = build(num_groups=2, threshold=0.0, model_aggregator=factory)
    found.append(federations.trained(process, clients))
  assert_close(*found, rtol=1e-4, atol=1e-6)
  with pytest.raises(ValueError, match='clients_per_round=...'):
    build(num_groups=2, model_aggregator=private)


@pytest.mark.parts
def test_with_secure_sums_nothing_is_in_the_clear(build):
  secure = {
    'num_groups': 2,
    'model_aggregator': tff.learning.secure_aggregator(),
    'metrics_aggregator': tff.learning.metrics.secure_sum_then_finalize,
  }
  process = build(**secure)
  tff.test.assert_not_contains_unsecure_aggregation(process.next)
  # Momenta would go round it.
  with pytest.raises(
    ValueError, match=r"secure sums, and .* momenta .*'reset'"
  ):
    build(client_momentum='mean', **secure)


class TestInProcessAssignment:
  """S = 2, groups drawn inside the process; tau = 1.01 closes every mask."""

  _CLIENTS = 9

  @pytest.fixture(scope='class')
  def process(self, build):
    return build(
      num_groups=2,
      threshold=1.01,
      group_assignment='in_process',
      data_spec=_PLAIN,
      seed=5,
    )

  def _clients(self, order):
    return [_dataset(*_examples(i, 3 + i)) for i in order]

  def _sizes(self, process, seed, order=range(_CLIENTS), rounds=6):
    """Group sizes of the first rounds for a seed of the process's state."""
    state = process.initialize()
    state = state._replace(
      distributor=collections.OrderedDict(state.distributor, seed=seed)
    )
    sizes = []
    for _ in range(rounds):
      state, metrics = process.next(state, self._clients(order))
      sizes.append(metrics['aggregator']['group_weights'])
    return np.stack(sizes), _stack(state)

  @pytest.mark.parts
  def test_sizes_add_up_and_vary_with_round_and_seed(self, process):
    assert process.initialize().distributor['seed'] == 5
    sizes, _ = self._sizes(process, np.int32(5))
    np.testing.assert_array_equal(sizes.sum(1), self._CLIENTS)
    assert len({tuple(row) for row in sizes}) > 1
    again, _ = self._sizes(process, np.int32(5))
    np.testing.assert_array_equal(again, sizes)
    other, _ = self._sizes(process, np.int32(6))
    assert (other != sizes).any()
    # Binomial with mean 4.5: 108 clients in all, so 54 +- 5 standard deviations
    # in each group.
    assert abs((sizes + other).sum(0)[0] - 54) < 5 * np.sqrt(108) / 2

  @pytest.mark.parts
  def test_order_of_clients_does_not_matter(self, process):
    sizes, stack = self._sizes(process, np.int32(5), rounds=3)
    mixed, mixed_stack = self._sizes(
      process, np.int32(5), order=[4, 2, 8, 0, 6, 1, 7, 3, 5], rounds=3
    )
    np.testing.assert_array_equal(mixed, sizes)
    np.testing.assert_allclose(mixed_stack, stack, atol=1e-6)

  def test_closed_masks_leave_clients_where_they_started(self, process):
    state = process.initialize()
    start = _stack(state)
    server = _server_model(start)
    state, metrics = process.next(state, self._clients(range(self._CLIENTS)))
    sizes = metrics['aggregator']['group_weights'].astype(float)
    members = [
      [row] * int(size) for row, size in zip(start, sizes, strict=True)
    ]
    np.testing.assert_allclose(
      _stack(state), _eq_7(start, members, server), atol=_TOLERANCE
    )
    train = metrics['client_work']['train']
    assert train['mask_rate'] == 0
    assert train['loss'] == 0


def test_sampler_needs_a_context(build):
  with pytest.raises(TypeError, match='in_context=True'):
    build(data_spec=_PLAIN)
