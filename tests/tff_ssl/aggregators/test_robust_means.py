"""Medians and their kin against numpy and scipy, alone and within groups."""

import collections

import costs
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators
from tff_ssl.aggregators import robust_means

_VALUE_TYPE = tff.to_type(
  collections.OrderedDict(kernel=(np.float32, [4, 2]), bias=np.float32)
)
_WEIGHT_TYPE = tff.to_type(np.float32)
_GROUPS = 3


def _factories():
  return {
    'median': aggregators.MedianFactory(),
    'trimmed': aggregators.TrimmedMeanFactory(0.2),
    'mean': tff.aggregators.MeanFactory(),
  }


@pytest.fixture(scope='module')
def aggregate(tff_context):
  """Runs one aggregation by the name of a factory, which is built once."""
  processes = {}

  def run(name, points, weights=None):
    if name not in processes:
      processes[name] = _factories()[name].create(_VALUE_TYPE, _WEIGHT_TYPE)
    weights = [1.0] * len(points) if weights is None else weights
    process = processes[name]
    output = process.next(
      process.initialize(), [_value(point) for point in points], weights
    )
    return _flat(output.result)

  return run


@pytest.fixture(scope='module')
def aggregate_groups(tff_context):
  """The same within groups; returns the means, `[S, 9]`, and the weights."""
  processes = {}
  value_type = tff.to_type(
    collections.OrderedDict(value=_VALUE_TYPE, group=np.int32)
  )

  def run(name, points, groups, weights):
    if name not in processes:
      processes[name] = aggregators.GroupMeanFactory(
        _GROUPS, mean_factory=_factories()[name]
      ).create(value_type, _WEIGHT_TYPE)
    members = [
      collections.OrderedDict(value=_value(point), group=np.int32(group))
      for point, group in zip(points, groups, strict=True)
    ]
    process = processes[name]
    output = process.next(process.initialize(), members, weights)
    mean, weight = output.result['mean'], output.result['weight']
    np.testing.assert_array_equal(output.measurements['group_weights'], weight)
    flat = [mean['kernel'].reshape(_GROUPS, -1), mean['bias'][:, np.newaxis]]
    return np.concatenate(flat, axis=1), weight

  return run


def _value(point):
  return collections.OrderedDict(
    kernel=point[:8].reshape(4, 2), bias=np.float32(point[8])
  )


def _flat(value):
  return np.append(value['kernel'].ravel(), value['bias'])


def _points(n, seed=0):
  return np.random.default_rng(seed).normal(size=[n, 9]).astype(np.float32)


def _expected(name, points):
  if name == 'median':
    return np.median(points, axis=0)
  return scipy.stats.trim_mean(points, 0.2, axis=0)


@pytest.mark.parametrize('name', ['median', 'trimmed'])
@pytest.mark.parametrize('n', [1, 2, 5, 10, 11])
def test_odd_and_even_numbers_of_clients(aggregate, name, n):
  points = _points(n)
  np.testing.assert_allclose(
    aggregate(name, points), _expected(name, points), rtol=1e-6, atol=1e-7
  )


@pytest.mark.parametrize('name', ['median', 'trimmed'])
def test_clients_without_weight_are_left_out(aggregate, name):
  """So are values that are not finite, whatever weight they claim."""
  points = _points(9, seed=1)
  points[6, 3] = np.nan
  points[7, 8] = np.inf
  weights = [1.0, 0.0, 7.0, 1.0, 0.5, 1e30, 1.0, 3.0, np.nan]
  counted = [0, 2, 3, 4, 5]
  np.testing.assert_allclose(
    aggregate(name, points, weights),
    _expected(name, points[counted]),
    rtol=1e-4,
    atol=1e-5,
  )


@pytest.mark.parametrize('name', ['median', 'trimmed'])
def test_with_nobody_left_the_result_is_zero(aggregate, name):
  points = _points(3)
  np.testing.assert_array_equal(aggregate(name, points, [0.0] * 3), 0)
  np.testing.assert_array_equal(aggregate(name, np.nan * points), 0)
  np.testing.assert_array_equal(aggregate(name, []), 0)
  np.testing.assert_array_equal(aggregate(name, points[:1]), points[0])


@pytest.mark.parametrize('scale', [-1.0, 1e6, 1e37])
@pytest.mark.parametrize('name', ['median', 'trimmed'])
def test_one_client_of_five_stays_within_the_others(aggregate, name, scale):
  points = 1 + 0.1 * _points(5, seed=2)
  points[1] *= np.float32(scale)
  others = np.delete(points, 1, axis=0)
  low, high = others.min(axis=0), others.max(axis=0)
  result = aggregate(name, points)
  assert (low <= result).all() and (result <= high).all()
  mean = aggregate('mean', points)
  assert ((mean < low) | (mean > high)).all()


@pytest.mark.parametrize(
  'name', costs.rest_in('parts', ['median', 'trimmed'], dear=True)
)
def test_each_group_has_its_own(aggregate_groups, name):
  """Of 4, 0 and 5 members; who is in none of the groups is left out."""
  points = _points(13, seed=3)
  groups = np.array([0, 2, 0, 2, 7, 0, 0, -1, 2, 2, 2, 1, 0])
  weights = [1.0, 5.0] + [1.0] * 9 + [0.0, 0.0]
  means, sizes = aggregate_groups(name, points, groups, weights)
  np.testing.assert_array_equal(sizes, [4, 0, 5])
  np.testing.assert_array_equal(means[1], 0)
  for group, members in ((0, [0, 2, 5, 6]), (2, [1, 3, 8, 9, 10])):
    np.testing.assert_allclose(
      means[group], _expected(name, points[members]), rtol=1e-4, atol=1e-5
    )


def _run(factory, value_type, values):
  process = factory.create(tff.to_type(value_type), _WEIGHT_TYPE)
  return process.next(process.initialize(), values, [1.0] * len(values)).result


@pytest.mark.parametrize('name', costs.rest_in('parts', ['median', 'trimmed']))
def test_values_that_fill_several_blocks(tff_context, monkeypatch, name):
  monkeypatch.setattr(robust_means, '_BLOCK', 4)
  points = _points(6, seed=4)
  result = _run(
    _factories()[name], _VALUE_TYPE, [_value(point) for point in points]
  )
  np.testing.assert_allclose(
    _flat(result), _expected(name, points), rtol=1e-4, atol=1e-5
  )


@pytest.mark.parametrize(
  'types',
  costs.rest_in('parts', [[tf.bfloat16, tf.float32], [tf.float16, tf.float64]]),
)
def test_each_tensor_keeps_its_type(tff_context, types):
  small, large = (each.as_numpy_dtype for each in types)
  rng = np.random.default_rng(5)
  values = [
    (rng.normal(size=3).astype(small), rng.normal(size=2).astype(large))
    for _ in range(5)
  ]
  result = _run(
    aggregators.MedianFactory(), [(small, [3]), (large, [2])], values
  )
  for found, own in zip(result, zip(*values, strict=True), strict=True):
    assert found.dtype == own[0].dtype
    np.testing.assert_array_equal(found, np.median(np.stack(own), axis=0))


def _line(x):
  return tf.data.Dataset.from_tensors(
    (np.array([[x]], np.float32), np.array([[0.0]], np.float32))
  )


@pytest.mark.parts
def test_tffs_own_fed_avg_takes_the_median(tff_context):
  """Of w x, with gradient w x^2: deltas are -x^2 at a rate of 1.

  TFF gives the client with NaN a weight of zero.
  """

  def model_fn():
    model = tf.keras.Sequential(
      [
        tf.keras.layers.Dense(
          1, kernel_initializer='ones', use_bias=False, input_shape=(1,)
        )
      ]
    )
    return tff.learning.models.from_keras_model(
      model,
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=_line(1.0).element_spec,
    )

  process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    tff.learning.optimizers.build_sgdm(0.5),
    model_aggregator=aggregators.MedianFactory(),
  )
  state = process.initialize()
  clients = [_line(x) for x in (1.0, 2.0, 3.0, np.nan, 1e4)]
  after = process.next(state, clients).state.global_model_weights
  np.testing.assert_allclose(after.trainable[0], [[1 - (4 + 9) / 2]])
  # The form of platforms gives the same.
  backend = tff.backends.mapreduce
  form = backend.get_map_reduce_form_for_computation(process.next)
  found, _ = backend.get_computation_for_map_reduce_form(form)(state, clients)
  np.testing.assert_equal(
    found['global_model_weights']['trainable'], after.trainable
  )


@pytest.mark.parametrize(
  'share, n, cut', [(0.145, 200, 29), (0.1, 10, 1), (0.1, 9, 0), (1 / 3, 9, 3)]
)
def test_as_many_are_trimmed_as_the_share_says(share, n, cut):
  """As floats .145 * 200 is less than 29."""
  values = np.square(np.arange(n, dtype=np.float32))
  found = aggregators.TrimmedMeanFactory(share).of_sorted(values[np.newaxis])
  np.testing.assert_allclose(found, [values[cut : n - cut].mean()], rtol=1e-6)


def _group_mean(**factories):
  value_type = collections.OrderedDict(value=_VALUE_TYPE, group=np.int32)
  return aggregators.GroupMeanFactory(2, **factories).create(
    tff.to_type(value_type), _WEIGHT_TYPE
  )


@pytest.mark.parametrize(
  'build, message',
  [
    (lambda: aggregators.TrimmedMeanFactory(0.5), 'trimmed_share .* is 0.5'),
    (lambda: aggregators.TrimmedMeanFactory(0.4999999), 'trimmed_share'),
    (lambda: aggregators.TrimmedMeanFactory(-0.1), 'trimmed_share .* is -0.1'),
    (lambda: aggregators.TrimmedMeanFactory(np.nan), 'trimmed_share .* is nan'),
    (lambda: aggregators.TrimmedMeanFactory('.1'), 'trimmed_share'),
    # Within groups, where their weights need no sum.
    (
      lambda: _group_mean(
        mean_factory=tff.aggregators.clipping_factory(
          1.0, aggregators.MedianFactory()
        )
      ),
      'mean_factory has a median .* inside',
    ),
  ],
)
def test_what_cannot_be_is_refused(build, message):
  with pytest.raises(ValueError, match=message):
    build()


@pytest.mark.parametrize(
  'value_type, weight_type, message',
  [
    (np.int32, np.float32, 'float tensors.* V holds int32'),
    ((np.float32, [None]), np.float32, 'known shapes'),
    (np.float32, np.int32, 'weight must be a float scalar'),
  ],
)
def test_other_types_are_refused(value_type, weight_type, message):
  with pytest.raises(TypeError, match=message):
    aggregators.MedianFactory().create(
      tff.to_type(value_type), tff.to_type(weight_type)
    )
