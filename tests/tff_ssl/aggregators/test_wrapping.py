"""An aggregator rests where no client, or too few, have anything to say."""

import math

import costs
import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl import aggregators
from tff_ssl.aggregators import recommended
from tff_ssl.testing import assertions

_FLOAT = tff.types.to_type(np.float32)
_VECTOR = tff.types.to_type((np.float32, [3]))
# Each adapts otherwise, or must not.
_DEAR = ('clip', 'compressed', 'dp')
_ARGUMENTS = {
  'dp': {'clients_per_round': 20, 'noise_multiplier': 0.5},
  'secure_dp': {
    'clients_per_round': 20,
    'noise_multiplier': 0.5,
    'clip_norm': 1.0,
  },
}


def _create(factory, value_type=_FLOAT, **how):
  if isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    factory = tff.aggregators.as_weighted_aggregator(factory)
  process = factory.create(value_type, _FLOAT)
  return aggregators.rest_without_clients(process, **how)


def _adaptive_clip():
  """Halves its norm of 8 in each round in which all norms are below it."""
  norm = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
    initial_estimate=8.0, target_quantile=0.0, learning_rate=math.log(2)
  )
  return tff.aggregators.clipping_factory(norm, tff.aggregators.MeanFactory())


def test_zeros_lower_the_norm_only_after_the_first_rounds(tff_context):
  process = _create(_adaptive_clip(), first_rounds=3)
  state, norms = process.initialize(), []
  for _ in range(5):
    output = process.next(state, [0.0, 0.0], [1.0, 1.0])
    state = output.state
    norms.append(output.measurements['clipping_norm'])
  # The norm that a round is clipped by is the one that the round before left.
  np.testing.assert_allclose(norms, [8, 8, 8, 8, 4])


def test_results_are_zero_at_first_and_then_those_of_the_factory(tff_context):
  """Without weights TFF's own mean is NaN."""
  process = _create(_adaptive_clip(), first_rounds=1)
  idle = process.next(process.initialize(), [0.0, 0.0], [0.0, 0.0])
  assert idle.result == 0
  output = process.next(idle.state, [1.0, 4.0], [1.0, 2.0])
  assert output.result == 3


@pytest.mark.dear
def test_states_whose_tensors_grow(tff_context):
  """Those of differential privacy by tree aggregation."""
  factory = tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
    0.0, 2.0, 8.0, tff.types.type_to_tf_tensor_specs(_FLOAT), noise_seed=1
  )
  process = _create(factory, first_rounds=1)
  state = process.initialize()
  for expected in (0, 2.5, 2.5, 2.5):
    output = process.next(state, [1.0, 4.0], [1.0, 1.0])
    state = output.state
    assert output.result == pytest.approx(expected)


def test_what_cannot_adapt_stays_as_it_is():
  fixed = tff.aggregators.clipping_factory(1.0, tff.aggregators.MeanFactory())
  process = fixed.create(_FLOAT, _FLOAT)
  assert aggregators.rest_without_clients(process, first_rounds=3) is process
  # Noise hides that nobody is there; a rest would tell.
  private = tff.aggregators.as_weighted_aggregator(
    aggregators.PrivateMeanFactory(0.5, 20)
  ).create(_FLOAT, _FLOAT)
  assert aggregators.rest_without_clients(private) is private


@pytest.mark.parametrize(
  'name',
  costs.rest_in(
    'parts',
    sorted(recommended.AGGREGATORS, key=lambda name: name not in _DEAR),
    keep=len(_DEAR),
    dear=True,
  ),
)
def test_a_round_without_clients_leaves_no_trace(tff_context, name):
  """As Poisson draws, a pause of all clients, or drop-outs bring it about."""
  spec = recommended.AGGREGATORS[name]
  process = _create(
    recommended.recommended_aggregator(name, **_ARGUMENTS.get(name, {})),
    _VECTOR,
  )
  zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
  start = process.initialize()
  rounds = ([], []), ([zeros] * 2, [0.0] * 2)
  # Zeros of private clients count as values, whatever their weight is.
  for values, weights in rounds[: 1 if spec.is_private else None]:
    output = process.next(start, values, weights)
    assertions.require_finite(output.state, 'The state must stay finite.')
    if spec.is_private:
      assert np.all(np.isfinite(output.result))
      continue
    np.testing.assert_array_equal(output.result, zeros)
    here, there = (
      process.next(state, [ones, 3 * ones], [1.0, 3.0]).result
      for state in (output.state, start)
    )
    np.testing.assert_array_equal(here, there)
    assert np.all(here > 0)


@pytest.mark.parametrize(
  'factory, message',
  [
    (aggregators.PrivateMeanFactory(0.5, 20), 'adds noise'),
    (aggregators.MedianFactory(), 'a median or the like'),
  ],
)
def test_what_no_least_number_protects_is_refused(factory, message):
  with pytest.raises(ValueError, match=f'min_group_size=2 .* {message}'):
    _create(factory, min_clients=2)


@pytest.mark.parametrize('secure', [False, True])
def test_the_result_of_too_few_clients_is_not_shown(tff_context, secure):
  values = tff.aggregators.SecureSumFactory(8.0, -8.0)
  factory = tff.aggregators.MeanFactory(values if secure else None)
  process = _create(factory, min_clients=3)
  assert aggregators.has_secure_sums(process.next) == secure

  def mean(*weights):
    given = [1.0] * len(weights)
    return process.next(process.initialize(), given, list(weights)).result

  assert mean(1.0, 1.0) == mean(1.0, 1.0, 0.0) == 0
  assert mean(1.0, 1.0, 0.0, 2.0) == pytest.approx(1, abs=1e-6)
