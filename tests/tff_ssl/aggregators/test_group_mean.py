"""The group mean against numpy, alone and with other inner aggregators."""

import collections

import costs
import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl import aggregators

_GROUPS = 3
_VALUE = collections.OrderedDict(
  kernel=(np.float32, [4, 2]), bias=(np.float32, [])
)
_VALUE_TYPE = tff.types.to_type(
  collections.OrderedDict(value=_VALUE, group=np.int32)
)
_WEIGHT_TYPE = tff.types.to_type(np.float32)


@pytest.fixture(scope='module')
def aggregate(tff_context):
  """Runs aggregations; each process is built once."""

  @costs.shared
  def build(**factories):
    factory = aggregators.GroupMeanFactory(_GROUPS, **factories)
    return factory.create(_VALUE_TYPE, _WEIGHT_TYPE)

  def run(values, groups, weights, times=1, **factories):
    members = [
      collections.OrderedDict(value=value, group=np.int32(group))
      for value, group in zip(values, groups, strict=True)
    ]
    weights = np.asarray(weights, np.float32).tolist()
    process = build(**factories)
    state, outputs = process.initialize(), []
    for _ in range(times):
      outputs.append(process.next(state, members, weights))
      state = outputs[-1].state
    return outputs if times > 1 else outputs[0]

  return run


def _values(num_clients, seed=0):
  rng = np.random.default_rng(seed)
  return [
    collections.OrderedDict(
      kernel=rng.normal(size=[4, 2]).astype(np.float32),
      bias=np.float32(rng.normal()),
    )
    for _ in range(num_clients)
  ]


def _numpy_means(values, groups, weights):
  """Weighted mean within each group; zero where the group has no weight."""
  groups, weights = np.asarray(groups), np.asarray(weights, np.float64)
  result = {}
  for key in _VALUE:
    stacked = np.stack([value[key] for value in values]).astype(np.float64)
    rows = []
    for group in range(_GROUPS):
      mine = weights * (groups == group)
      total = np.tensordot(mine, stacked, 1)
      rows.append(total / mine.sum() if mine.sum() else np.zeros_like(total))
    result[key] = np.stack(rows)
  totals = [weights[groups == group].sum() for group in range(_GROUPS)]
  return result, np.array(totals)


def _assert_equals_numpy(result, values, groups, weights, atol=1e-6):
  means, totals = _numpy_means(values, groups, weights)
  for key, expected in means.items():
    np.testing.assert_allclose(result['mean'][key], expected, atol=atol)
  np.testing.assert_allclose(result['weight'], totals, rtol=1e-6)


def test_random_weights_and_unequal_groups(aggregate):
  values = _values(7)
  groups = [2, 0, 0, 1, 0, 2, 0]
  weights = np.random.default_rng(1).uniform(0.1, 20, 7).astype(np.float32)
  output = aggregate(values, groups, weights)
  _assert_equals_numpy(output.result, values, groups, weights, atol=1e-5)
  np.testing.assert_array_equal(
    output.measurements['group_weights'], output.result['weight']
  )


@pytest.mark.dear
def test_r14_every_set_of_survivors(aggregate):
  """C = 6, S = 3: a client that dropped out has weight and value zero."""
  values = _values(6, seed=2)
  groups = [0, 1, 2, 0, 1, 2]
  for bits in range(64):
    weights = [float(bits >> client & 1) for client in range(6)]
    sent = [
      collections.OrderedDict((k, v * np.float32(w)) for k, v in value.items())
      for value, w in zip(values, weights, strict=True)
    ]
    output = aggregate(sent, groups, weights)
    assert np.isfinite(output.result['mean']['kernel']).all()
    assert np.isfinite(output.result['mean']['bias']).all()
    _assert_equals_numpy(output.result, values, groups, weights)


def test_r15_groups_out_of_range_are_ignored(aggregate):
  values = _values(5, seed=3)
  groups = [0, 3, -1, 2, 2**31 - 1]
  weights = [1.0, 2.0, 3.0, 4.0, 5.0]
  output = aggregate(values, groups, weights)
  _assert_equals_numpy(output.result, values, groups, weights)
  np.testing.assert_array_equal(output.result['weight'], [1, 0, 4])


def test_clipping_sees_the_norm_of_the_clients_own_value(aggregate):
  norm = 1.5
  factory = tff.aggregators.clipping_factory(
    norm, tff.aggregators.MeanFactory()
  )
  values = _values(6, seed=4)
  values[0] = collections.OrderedDict(
    (key, np.float32(0.01) * value) for key, value in values[0].items()
  )
  clipped, factors = [], []
  for value in values:
    own = np.sqrt(
      sum((leaf.astype(float) ** 2).sum() for leaf in value.values())
    )
    factors.append(min(1, norm / own))
    clipped.append({key: leaf * factors[-1] for key, leaf in value.items()})
  assert factors[0] == 1 and min(factors) < 0.8  # both cases are here
  groups = [0, 0, 1, 1, 1, 7]
  # Neither the counts nor the weights are clipped.
  weights = [0.01, 5.0, 1.0, 30.0, 2.0, 100.0]
  output = aggregate(values, groups, weights, mean_factory=factory)
  _assert_equals_numpy(output.result, clipped, groups, weights, atol=1e-5)


@pytest.mark.parts
@pytest.mark.parametrize('name', ['robust', 'compression', 'secure'])
def test_stock_means_of_tff_that_leave_small_values_alone(aggregate, name):
  values = [
    collections.OrderedDict((k, np.float32(0.05) * v) for k, v in value.items())
    for value in _values(5, seed=8)
  ]
  groups = [0, 1, 1, 2, 5]
  weights = [3.0, 1.0, 2.0, 1.0, 1.0]
  output = aggregate(
    values,
    groups,
    weights,
    mean_factory=getattr(tff.learning, f'{name}_aggregator')(),
  )
  _assert_equals_numpy(output.result, values, groups, weights, atol=1e-5)


def test_a_large_weight_does_not_silence_its_group(aggregate):
  """All values are 1: so is the mean, whatever the weights and the clip.

  The one that clips after the weights gave .002, (1 + 1) / 1001.
  """
  values = [
    collections.OrderedDict(
      kernel=np.zeros([4, 2], np.float32), bias=np.float32(1)
    )
  ] * 4
  factory = tff.aggregators.clipping_factory(1.0, tff.aggregators.MeanFactory())
  output = aggregate(
    values, [0, 0, 1, 1], [1000.0, 1.0, 1.0, 1.0], mean_factory=factory
  )
  np.testing.assert_allclose(output.result['mean']['bias'], [1, 1, 0])


@pytest.mark.parametrize(
  'factories', [{}, {'mean_factory': tff.aggregators.MeanFactory()}]
)
def test_no_weight_in_any_group(aggregate, factories):
  """The inner mean divides 0 by 0 then."""
  output = aggregate(_values(3), [0, 1, 9], [0.0, 0.0, 5.0], **factories)
  np.testing.assert_array_equal(output.result['mean']['kernel'], 0)
  np.testing.assert_array_equal(output.result['mean']['bias'], 0)
  np.testing.assert_array_equal(output.result['weight'], 0)


@costs.shared
def _private(noise_multiplier, clients, norm=1.0):
  return {
    'mean_factory': tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
      noise_multiplier, float(clients), norm
    ),
    'clients_per_round': clients,
  }


def _flat(mean):
  return np.concatenate(
    [mean['kernel'].reshape(_GROUPS, -1), mean['bias'][:, np.newaxis]], axis=1
  )


def test_private_means_divide_by_public_numbers(aggregate):
  """Whoever is missing, and whatever a client says that it weighs."""
  values = [
    collections.OrderedDict(
      kernel=np.full([4, 2], 0.1, np.float32), bias=np.float32(0.1)
    )
  ] * 6
  groups, private = [0, 0, 1, 1, 2, 2], _private(0.0, 6)
  found = aggregate(values, groups, [1000.0, 1, 1, 1, 1, 1], **private).result
  np.testing.assert_allclose(_flat(found['mean']), 0.1, rtol=1e-5)
  np.testing.assert_allclose(found['weight'], 2.0)
  # One of group 0 has not come, one of group 1 was left out.
  weights = [1.0, 0, 1, 1, 1]
  found = aggregate(values[:5], groups[1:], weights, **private).result
  np.testing.assert_allclose(
    _flat(found['mean'])[:, 0], [0.05, 0.05, 0.1], rtol=1e-5
  )
  np.testing.assert_allclose(found['weight'], 2.0)


@pytest.mark.parts
def test_p4_a_client_moves_one_row_by_no_more_than_the_norm(aggregate):
  """The sum without noise, of 40 pairs of neighbouring cohorts."""
  norm, clients = 1.5, 4
  rng = np.random.default_rng(0)
  for seed in range(40):
    values = _values(clients, seed)
    scale = np.float32(10 ** rng.uniform(-2, 2))
    values[0] = {key: value * scale for key, value in values[0].items()}
    groups = rng.integers(0, _GROUPS, clients)
    with_it, without = (
      aggregate(
        values[first:],
        groups[first:],
        np.ones(clients - first),
        **_private(0.0, clients, norm),
      ).result['mean']
      for first in (0, 1)
    )
    change = (_flat(with_it) - _flat(without)) * clients / _GROUPS
    size = np.linalg.norm(
      np.concatenate([v.ravel() for v in values[0].values()])
    )
    assert np.linalg.norm(change) == pytest.approx(min(size, norm), rel=1e-3)
    rows = np.flatnonzero(np.abs(change).max(axis=1) > 1e-5)
    assert rows.tolist() == [groups[0]]


@pytest.mark.parts
def test_noise_is_on_all_rows(aggregate):
  """z times the norm on each number of the sum, so S / C of that on means."""
  values = _values(4)
  outputs = aggregate(values, [0] * 4, [1] * 4, 200, **_private(2.0, 4, 1.5))
  means = np.stack([_flat(output.result['mean']) for output in outputs])
  noise = means - means.mean(axis=0)
  expected = 2.0 * 1.5 * _GROUPS / 4
  for row in range(_GROUPS):
    # 1,800 numbers know a deviation to 1.7%.
    assert noise[:, row].std() == pytest.approx(expected, rel=0.06)
  # Of groups without clients there is noise and nothing else.
  assert abs(means[:, 1:].mean()) < 4 * expected / np.sqrt(means[:, 1:].size)


def test_compression_errs_by_no_more_than_it_says(aggregate):
  """Each client may move each sum by its weight times its range / 255."""
  factory = tff.aggregators.EncodedSumFactory.quantize_above_threshold(
    quantization_bits=8, threshold=8
  )
  values = _values(6, seed=9)
  groups = [0, 0, 1, 1, 1, 2]
  weights = np.array([4.0, 1.0, 1.0, 2.0, 1.0, 1.0])
  output = aggregate(
    values,
    groups,
    weights,
    mean_factory=tff.aggregators.MeanFactory(
      factory, tff.aggregators.SumFactory()
    ),
  )
  exact, totals = _numpy_means(values, groups, weights)
  ranges = np.array(
    [max(v['kernel'].max(), 0) - min(v['kernel'].min(), 0) for v in values]
  )
  bounds = (weights * ranges).sum() / 255 / totals
  errors = np.abs(output.result['mean']['kernel'] - exact['kernel'])
  assert (errors.max((1, 2)) <= 1.001 * bounds).all()
  assert errors.max() > 1e-3  # it does compress
  np.testing.assert_allclose(output.result['mean']['bias'], exact['bias'])


def test_an_inner_mean_equals_the_sum(aggregate):
  values = _values(5, seed=5)
  groups = [1, 1, 0, 7, 1]
  weights = [1.0, 0.5, 2.0, 1.0, 3.0]
  output = aggregate(
    values,
    groups,
    weights,
    mean_factory=tff.aggregators.UnweightedMeanFactory(),
  )
  _assert_equals_numpy(output.result, values, groups, weights)


_SECURE = tff.aggregators.MeanFactory(
  tff.aggregators.SecureSumFactory(50.0, -50.0),
  tff.aggregators.SecureSumFactory(50.0, 0.0),
)


@pytest.mark.dear
@pytest.mark.parametrize(
  'factories', [{}, {'mean_factory': _SECURE}], ids=['plain', 'secure']
)
def test_p1_a_group_of_few_members_counts_as_one_without(aggregate, factories):
  """Whoever has dropped out has weight 0, and is no member."""
  values = _values(7, seed=8)
  groups, weights = [0, 0, 0, 1, 1, 1, 2], [1.0, 2.0, 3.0, 1.0, 1.0, 0.0, 9.0]
  output = aggregate(values, groups, weights, min_group_size=3, **factories)
  is_shown = np.array(groups) == 0
  atol = 1e-5 if factories else 1e-6
  _assert_equals_numpy(
    output.result, values, groups, weights * is_shown, atol=atol
  )
  # Nor does the weight of its only member show.
  np.testing.assert_allclose(
    output.measurements['group_weights'], [6, 0, 0], rtol=1e-6
  )
  whole = aggregate(values, groups, weights, min_group_size=1, **factories)
  _assert_equals_numpy(whole.result, values, groups, weights, atol=atol)


def test_measurements_of_the_inner_aggregator_are_passed_on(aggregate):
  factory = tff.aggregators.add_measurements(
    tff.aggregators.UnweightedMeanFactory(),
    server_measurement_fn=lambda mean: collections.OrderedDict(
      bias=mean['bias']
    ),
  )
  values = _values(2, seed=6)
  output = aggregate(values, [0, 2], [1.0, 1.0], mean_factory=factory)
  np.testing.assert_allclose(
    output.measurements['values']['bias'],
    [values[0]['bias'] / 2, 0, values[1]['bias'] / 2],
    rtol=1e-6,
  )


@pytest.mark.parametrize(
  'value_type, weight_type',
  [
    (np.float32, np.float32),
    (collections.OrderedDict(value=np.float32), np.float32),
    (collections.OrderedDict(group=np.int32, value=np.float32), np.float32),
    (collections.OrderedDict(value=np.float32, group=np.int64), np.float32),
    (collections.OrderedDict(value=np.int32, group=np.int32), np.float32),
    (collections.OrderedDict(value=np.float32, group=np.int32), np.int32),
    (
      collections.OrderedDict(value=np.float32, group=(np.int32, [1])),
      np.float32,
    ),
  ],
)
def test_other_types_are_refused(value_type, weight_type):
  with pytest.raises(TypeError, match='float'):
    aggregators.GroupMeanFactory(2).create(
      tff.types.to_type(value_type), tff.types.to_type(weight_type)
    )


def test_the_weight_must_be_a_scalar():
  value_type = collections.OrderedDict(value=np.float32, group=np.int32)
  with pytest.raises(TypeError, match='scalar'):
    aggregators.GroupMeanFactory(2).create(
      tff.types.to_type(value_type), tff.types.to_type((np.float32, [2]))
    )


def _clipped(factory):
  return tff.aggregators.clipping_factory(1.0, factory)


def _create(num_groups=_GROUPS, **factories):
  return aggregators.GroupMeanFactory(num_groups, **factories).create(
    _VALUE_TYPE, _WEIGHT_TYPE
  )


_SUM = tff.aggregators.SumFactory()
_UNWEIGHTED = tff.aggregators.UnweightedMeanFactory()
_FIXED_CLIP = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed


@pytest.mark.parametrize(
  'factories, message',
  [
    # Of private means.
    ({**_private(1.0, 4), 'clients_per_round': 2}, 'at least num_groups=3'),
    ({**_private(1.0, 4), 'clients_per_round': 2.5}, 'per_round=2.5 must be'),
    (
      {'clients_per_round': 4, 'mean_factory': _UNWEIGHTED},
      'clients_per_round=4 is for a mean_factory with noise',
    ),
    # Private means that do not know the number of clients: else that of ones
    # within groups [0, 1, 1] of a cohort of 4 was .75.
    *(
      pytest.param(
        {'mean_factory': factory},
        'mean_factory .* privacy.* clients_per_round=...',
        marks=pytest.mark.parts,
      )
      for factory in (
        _FIXED_CLIP(0.0, 4.0, 1.0),
        _clipped(
          tff.aggregators.as_weighted_aggregator(_FIXED_CLIP(1.0, 4.0, 1.0))
        ),
        tff.learning.dp_aggregator(0.1, 100.0),
        tff.learning.ddp_secure_aggregator(0.1, 100),
      )
    ),
    # Clipping behind the weights.
    *(
      ({'mean_factory': factory}, 'mean_factory clips .*MeanFactory')
      for factory in (
        tff.learning.robust_aggregator(weighted=False),
        tff.aggregators.MeanFactory(_clipped(_SUM)),
        tff.aggregators.MeanFactory(tff.aggregators.zeroing_factory(1.0, _SUM)),
      )
    ),
    # Groups of few members.
    ({'min_group_size': 0}, 'min_group_size .* but is 0'),
    (
      {'min_group_size': 2, **_private(1.0, 4)},
      'min_group_size=2 does not fit a mean_factory with noise',
    ),
    (
      {'min_group_size': 2, 'mean_factory': aggregators.MedianFactory()},
      'min_group_size=2 hides nobody beside a MedianFactory',
    ),
    *(({'num_groups': n}, 'num_groups') for n in (0, -2, 1.5, None)),
  ],
)
def test_factories_that_do_not_fit_are_refused(factories, message):
  with pytest.raises(ValueError, match=message):
    _create(**factories)


@pytest.mark.parametrize(
  'factories, message',
  [
    ({'clients_per_round': 4}, 'clients_per_round=4 is for an unw'),
    (
      {'clients_per_round': 4, 'mean_factory': _SUM},
      'mean_factory is a SumFactory, which gives no mean',
    ),
    ({'mean_factory': 1.0}, 'mean_factory must be .* is float'),
    (
      {'mean_factory': tff.aggregators.as_weighted_aggregator(_UNWEIGHTED)},
      'mean_factory ignores the weights',
    ),
  ],
)
def test_what_is_no_mean_is_refused(factories, message):
  with pytest.raises(TypeError, match=message):
    _create(**factories)
