"""Aggregators by name, against numpy; metrics of clients, secure or kept."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators
from tff_ssl.aggregators import recommended

_TYPE = tff.types.to_type((np.float32, [2]))
_WEIGHT = tff.types.to_type(np.float32)
# Their norms are 5, 1, 2 and 0.
_VALUES = np.array([[3, 4], [0, 1], [-2, 0], [0, 0]], np.float32)
_WEIGHTS = np.array([1, 3, 2, 5], np.float32)


def _create(name, **settings):
  factory = recommended.recommended_aggregator(name, **settings)
  is_weighted = isinstance(factory, tff.aggregators.WeightedAggregationFactory)
  types = (_TYPE, _WEIGHT) if is_weighted else (_TYPE,)
  return factory.create(*types), is_weighted


def _run(name, weights=_WEIGHTS, **settings):
  process, is_weighted = _create(name, **settings)
  given = (list(weights),) if is_weighted else ()
  return process.next(process.initialize(), list(_VALUES), *given).result


def _clipped(norm):
  norms = np.linalg.norm(_VALUES, axis=1, keepdims=True)
  return _VALUES * np.minimum(1, norm / np.maximum(norms, 1e-9))


def _weighted_mean(values):
  return np.average(values, axis=0, weights=_WEIGHTS)


@pytest.mark.parametrize(
  ('name', 'settings', 'expected'),
  [
    ('mean', {}, _weighted_mean(_VALUES)),
    ('clip', {'clip_norm': 2.0}, _weighted_mean(_clipped(2))),
    # TFF's first bounds: norms above 10 count as zero, others are clipped to 1.
    ('clip', {}, _weighted_mean(_clipped(1))),
    ('robust', {}, _weighted_mean(_clipped(1))),
    # All clients count alike.
    ('median', {}, np.median(_VALUES, axis=0)),
    ('trimmed_mean', {'trimmed_share': 0.25}, np.sort(_VALUES, 0)[1:3].mean(0)),
    ('compressed', {}, _weighted_mean(_clipped(1))),
    pytest.param(
      'secure', {}, _weighted_mean(_clipped(1)), marks=pytest.mark.parts
    ),
    # Divided by the number that was given, and not by the four clients.
    (
      'dp',
      {'noise_multiplier': 0.0, 'clip_norm': 2.0, 'clients_per_round': 8},
      _clipped(2).sum(0) / 8,
    ),
    (
      'dp',
      {'noise_multiplier': 0.0, 'clients_per_round': 4},
      _clipped(0.1).sum(0) / 4,
    ),
    (
      'secure_dp',
      {'noise_multiplier': 0.0, 'clip_norm': 2.0, 'clients_per_round': 8},
      _clipped(2).sum(0) / 8,
    ),
  ],
)
def test_the_result_is_that_of_numpy(tff_context, name, settings, expected):
  np.testing.assert_allclose(_run(name, **settings), expected, atol=1e-5)


@pytest.mark.parts
def test_noise_is_in_proportion_to_norm_and_multiplier(tff_context):
  process, _ = _create(
    'secure_dp', noise_multiplier=2.0, clip_norm=0.5, clients_per_round=4
  )
  state, draws = process.initialize(), []
  for _ in range(40):
    output = process.next(state, list(_VALUES))
    state = output.state
    draws.append(output.result)
  noise = np.array(draws) - _clipped(0.5).sum(0) / 4
  # A chi-squared of 80 degrees lies within these bounds but once in 10,000.
  assert 0.25 * 0.72 < np.sqrt((noise**2).mean()) < 0.25 * 1.32


def test_a_round_without_weight_is_zero(tff_context):
  result = _run('clip', np.zeros(4, np.float32), clip_norm=1.0)
  np.testing.assert_array_equal(result, [0, 0])


@pytest.mark.parametrize('name', recommended.AGGREGATORS)
def test_its_record_says_what_it_does(name):
  spec = recommended.AGGREGATORS[name]
  given = {'noise_multiplier': 0.1, 'clip_norm': 1.0, 'trimmed_share': 0.1}
  settings = {s.name: given[s.name] for s in spec.settings}
  process, is_weighted = _create(name, clients_per_round=10, **settings)
  assert is_weighted == spec.is_weighted
  assert aggregators.is_private(process) == spec.is_private
  assert aggregators.collects_values(process) == spec.sees_clients
  assert aggregators.has_secure_sums(process.next) == spec.is_secure
  if spec.is_secure:
    tff.test.assert_not_contains_unsecure_aggregation(process.next)


@pytest.mark.parametrize(
  ('name', 'settings', 'error', 'message'),
  [
    ('krum', {}, ValueError, "name='krum' is no aggregator: choose one of"),
    ('mean', {'clip_norm': 1.0}, TypeError, 'clip_norm is no setting of'),
    ('clip', {'clip_norm': 0}, ValueError, 'clip_norm must be a number > 0'),
    ('dp', {'clients_per_round': 4}, TypeError, 'needs noise_multiplier'),
    ('dp', {'noise_multiplier': 1.0}, TypeError, 'needs clients_per_round'),
    (
      'secure_dp',
      {'noise_multiplier': 1.0, 'clients_per_round': 4},
      TypeError,
      'needs clip_norm',
    ),
    (
      'dp',
      {'noise_multiplier': 1.0, 'clients_per_round': 10},
      ValueError,
      r'`clients_per_round=10` must exceed 10 \* `noise_multiplier=1.0`',
    ),
  ],
)
def test_what_cannot_be_is_refused(name, settings, error, message):
  with pytest.raises(error, match=message):
    recommended.recommended_aggregator(name, **settings)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ({'clients_per_round': 0}, 'clients_per_round must be .* >= 1, but is 0'),
    ({'noise_multiplier': -1.0}, 'noise_multiplier must be .* but is -1.0'),
    (
      {'clip_norm': float('inf')},
      'clip_norm must be a finite number > 0, but is inf',
    ),
    ({'clip_norm': None, 'secure': True}, 'clip_norm is missing: secure sums'),
  ],
)
def test_a_private_mean_checks_its_numbers(arguments, message):
  given = {
    'noise_multiplier': 0.1,
    'clients_per_round': 4,
    'clip_norm': 1.0,
    **arguments,
  }
  with pytest.raises(ValueError, match=message):
    aggregators.PrivateMeanFactory(**given)


_PAIR = tff.TensorType(np.float32, [2])
_METRICS_TYPE = tff.types.to_type(
  collections.OrderedDict(examples=_PAIR, loss=_PAIR)
)
_FINALIZERS = collections.OrderedDict(
  examples=tf.function(lambda pair: pair[0]),
  loss=tf.function(lambda pair: pair[0] / pair[1]),
)
_CLIENTS = [
  collections.OrderedDict(examples=[12.0, 1.0], loss=[-1.5, 4.0]),
  collections.OrderedDict(examples=[30.0, 1.0], loss=[3.0, 1.0]),
]


def _aggregation(metrics_aggregator):
  aggregate = metrics_aggregator(_FINALIZERS)

  @tff.federated_computation(tff.FederatedType(_METRICS_TYPE, tff.CLIENTS))
  def run(metrics):
    return aggregate(metrics)

  return run


@pytest.mark.parts
def test_secure_sums_equal_plain_ones(tff_context):
  secure = _aggregation(aggregators.secure_metrics)
  tff.test.assert_not_contains_unsecure_aggregation(secure)
  found = secure(_CLIENTS)
  plain = _aggregation(tff.learning.metrics.sum_then_finalize)(_CLIENTS)
  for name in plain:
    # Half a step of 2**-11 for each client.
    assert found[name] == pytest.approx(plain[name], abs=2**-11)


def test_nothing_reaches_the_server():
  run = _aggregation(aggregators.no_metrics)
  assert len(run.type_signature.result.member) == 0
  tff.test.assert_not_contains_unsecure_aggregation(run)
  tff.test.assert_not_contains_secure_aggregation(run)
