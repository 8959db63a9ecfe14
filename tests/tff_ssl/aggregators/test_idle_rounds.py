"""An aggregator rests while only the server trains."""

import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_ssl import aggregators

_FLOAT = tff.types.to_type(np.float32)


def _create(factory, rounds):
  process = factory.create(_FLOAT, _FLOAT)
  return aggregators.rest_in_first_rounds(process, rounds)


def _adaptive_clip():
  """Halves its norm of 8 in each round in which all norms are below it."""
  norm = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
    initial_estimate=8.0, target_quantile=0.0, learning_rate=math.log(2)
  )
  return tff.aggregators.clipping_factory(norm, tff.aggregators.MeanFactory())


def test_zeros_lower_the_norm_only_after_the_rounds(tff_context):
  process = _create(_adaptive_clip(), rounds=3)
  state, norms = process.initialize(), []
  for _ in range(5):
    output = process.next(state, [0.0, 0.0], [1.0, 1.0])
    state = output.state
    norms.append(output.measurements['clipping_norm'])
  # The norm that a round is clipped by is the one that the round before left.
  np.testing.assert_allclose(norms, [8, 8, 8, 8, 4])


def test_results_are_zero_at_first_and_then_those_of_the_factory(tff_context):
  """Without weights TFF's own mean is NaN."""
  process = _create(_adaptive_clip(), rounds=1)
  idle = process.next(process.initialize(), [0.0, 0.0], [0.0, 0.0])
  assert idle.result == 0
  output = process.next(idle.state, [1.0, 4.0], [1.0, 2.0])
  assert output.result == 3


@pytest.mark.dear
def test_states_whose_tensors_grow(tff_context):
  """Those of differential privacy by tree aggregation."""
  factory = tff.aggregators.as_weighted_aggregator(
    tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
      0.0, 2.0, 8.0, tff.types.type_to_tf_tensor_specs(_FLOAT), noise_seed=1
    )
  )
  process = _create(factory, rounds=1)
  state = process.initialize()
  for expected in (0, 2.5, 2.5, 2.5):
    output = process.next(state, [1.0, 4.0], [1.0, 1.0])
    state = output.state
    assert output.result == pytest.approx(expected)


def test_what_cannot_adapt_stays_as_it_is():
  fixed = tff.aggregators.clipping_factory(1.0, tff.aggregators.MeanFactory())
  process = fixed.create(_FLOAT, _FLOAT)
  assert aggregators.rest_in_first_rounds(process, 3) is process
  adaptive = _adaptive_clip().create(_FLOAT, _FLOAT)
  assert aggregators.rest_in_first_rounds(adaptive, 0) is adaptive
