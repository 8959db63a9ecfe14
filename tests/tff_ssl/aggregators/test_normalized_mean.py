"""FedNova's mean against numpy, alone and around other aggregators."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff
from comparing import assert_close

from tff_ssl import aggregators

_STEPS = (1.0, 4.0, 2.5)
_WEIGHTS = (2.0, 9.0, 5.0)
_WEIGHT_TYPE = tff.types.to_type(np.float32)
_WEIGHTS_TYPE = tff.types.to_type(
  tff.learning.models.ModelWeights(
    [(np.float32, [3, 2]), (np.float32, [2])], [(np.float32, [2])]
  )
)
_VALUE_TYPE = tff.types.to_type(
  collections.OrderedDict(value=_WEIGHTS_TYPE, steps=np.float32)
)


def values():
  rng = np.random.default_rng(3)
  return [
    tff.learning.models.ModelWeights(
      [rng.normal(size=shape).astype(np.float32) for shape in ([3, 2], [2])],
      [rng.normal(size=[2]).astype(np.float32)],
    )
    for _ in _STEPS
  ]


def aggregate(members, steps, weights, inner=None):
  process = aggregators.NormalizedMeanFactory(
    inner or tff.aggregators.MeanFactory(no_nan_division=True)
  ).create(_VALUE_TYPE, _WEIGHT_TYPE)
  sent = [
    collections.OrderedDict(value=member, steps=np.float32(step))
    for member, step in zip(members, steps, strict=True)
  ]
  return process.next(
    process.initialize(), sent, [np.float32(weight) for weight in weights]
  )


def test_equals_the_papers_rule(tff_context):
  members = values()
  output = aggregate(members, _STEPS, _WEIGHTS)
  p = np.array(_WEIGHTS) / np.sum(_WEIGHTS)
  tau = p @ _STEPS
  np.testing.assert_allclose(
    output.measurements['effective_steps'], tau, rtol=1e-6
  )
  for leaf, actual in enumerate(output.result.trainable):
    expected = tau * sum(
      share * member.trainable[leaf] / steps
      for share, member, steps in zip(p, members, _STEPS, strict=True)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
  # Moving statistics are a plain mean.
  moving = sum(
    share * member.non_trainable[0]
    for share, member in zip(p, members, strict=True)
  )
  np.testing.assert_allclose(output.result.non_trainable[0], moving, rtol=1e-5)


@pytest.mark.parts
def test_secure_sums_are_secure_in_all_parts(tff_context):
  members = values()
  plain = aggregate(members, _STEPS, _WEIGHTS)
  inner = tff.aggregators.MeanFactory(
    tff.aggregators.SecureSumFactory(100.0, -100.0),
    tff.aggregators.SecureSumFactory(100.0, 0.0),
  )
  process = aggregators.NormalizedMeanFactory(inner).create(
    _VALUE_TYPE, _WEIGHT_TYPE
  )
  tff.test.assert_not_contains_unsecure_aggregation(process.next)
  secure = aggregate(members, _STEPS, _WEIGHTS, inner)
  assert_close(secure.result.trainable, plain.result.trainable, atol=1e-3)


def test_no_weight_at_all_gives_zeros(tff_context):
  output = aggregate(values(), _STEPS, (0.0, 0.0, 0.0))
  assert output.measurements['effective_steps'] == 0
  for leaf in output.result.trainable:
    np.testing.assert_array_equal(leaf, 0)


def test_a_client_without_steps_counts_in_their_mean_alone(tff_context):
  members = values()
  output = aggregate(members, (3.0, 0.0, 3.0), (1.0, 1.0, 2.0))
  expected = 2.25 * (
    members[0].trainable[1] / 3 + 2 * members[2].trainable[1] / 3
  )
  np.testing.assert_allclose(
    output.result.trainable[1], expected / 4, rtol=1e-5, atol=1e-6
  )


@pytest.mark.parts
def test_a_median_is_one_of_the_steps_too(tff_context):
  """The last client claims steps and a delta that a mean would follow."""
  members = values()
  steps = (1.0, 4.0, 1e6)
  output = aggregate(members, steps, _WEIGHTS, aggregators.MedianFactory())
  assert output.measurements['effective_steps'] == 4
  for leaf, actual in enumerate(output.result.trainable):
    per_step = [
      member.trainable[leaf] / step
      for member, step in zip(members, steps, strict=True)
    ]
    np.testing.assert_allclose(
      actual, 4 * np.median(per_step, axis=0), rtol=1e-5, atol=1e-6
    )


def test_inner_clipping_sees_the_delta_of_one_step(tff_context):
  """The one client of norm 6 and 3 steps is under a bound of 2, not above."""
  member = tff.learning.models.ModelWeights(
    [np.zeros([3, 2], np.float32), np.array([6, 0], np.float32)],
    [np.zeros([2], np.float32)],
  )
  inner = tff.aggregators.as_weighted_aggregator(
    tff.aggregators.clipping_factory(
      2.0, tff.aggregators.UnweightedMeanFactory()
    )
  )
  output = aggregate([member], (3.0,), (1.0,), inner)
  np.testing.assert_allclose(output.result.trainable[1], [6, 0], rtol=1e-5)
  output = aggregate([member], (1.5,), (1.0,), inner)
  np.testing.assert_allclose(output.result.trainable[1], [3, 0], rtol=1e-5)


def test_other_inner_factories_are_refused():
  # Noise, which the steps would not get.
  noise = tff.aggregators.as_weighted_aggregator(
    aggregators.PrivateMeanFactory(0.5, 3, clip_norm=1.0)
  )
  inside = tff.aggregators.clipping_factory(1.0, aggregators.MedianFactory())
  for inner, message in (
    (noise, 'a mean of steps that gets none'),
    (inside, 'mean_factory has a median .* inside'),
  ):
    with pytest.raises(ValueError, match=message):
      aggregators.NormalizedMeanFactory(inner).create(_VALUE_TYPE, _WEIGHT_TYPE)
  with pytest.raises(TypeError, match='as_weighted_aggregator'):
    aggregators.NormalizedMeanFactory(tff.aggregators.UnweightedMeanFactory())
