"""How the aggregate is applied, against numpy."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import finalizers

ModelWeights = tff.learning.models.ModelWeights


def _apply(process, state, weights, delta):
  output = process.next(state, weights, delta)
  return output.state, output.result, output.measurements


class TestApplyMeanDelta:
  """delta is minus the gradient of the server optimizer; moving state adds."""

  _WEIGHTS = ModelWeights([(np.float32, [2])], [(np.float32, [])])

  @pytest.fixture(scope='class')
  def process(self, tff_context):
    return finalizers.build_apply_mean_delta(
      tff.learning.optimizers.build_sgdm(0.5, momentum=0.9),
      weights_type=tff.types.to_type(self._WEIGHTS),
      aggregate_type=tff.types.to_type(self._WEIGHTS),
    )

  def _weights(self, trainable, moving):
    return ModelWeights([np.array(trainable, np.float32)], [np.float32(moving)])

  def test_momentum_over_two_rounds(self, process):
    state = process.initialize()
    weights = self._weights([1, -1], 10)
    state, weights, measured = _apply(
      process, state, weights, self._weights([2, 4], 0.25)
    )
    # Velocity -(2, 4); step .5 * velocity against the gradient.
    np.testing.assert_allclose(weights.trainable[0], [2, 1])
    assert weights.non_trainable[0] == 10.25
    assert measured['update_non_finite'] == 0
    state, weights, _ = _apply(
      process, state, weights, self._weights([0, 1], -0.25)
    )
    # Velocity -(1.8, 3.6 + 1).
    np.testing.assert_allclose(weights.trainable[0], [2.9, 3.3], rtol=1e-6)
    assert weights.non_trainable[0] == 10

  @pytest.mark.parametrize(
    'trainable, moving', [([np.nan, 0], 0), ([0, np.inf], 0), ([1, 1], np.nan)]
  )
  def test_a_non_finite_aggregate_changes_nothing(
    self, process, trainable, moving
  ):
    start = self._weights([1, -1], 10)
    state, weights, _ = _apply(
      process, process.initialize(), start, self._weights([2, 4], 1)
    )
    after, same, measured = _apply(
      process, state, weights, self._weights(trainable, moving)
    )
    assert measured['update_non_finite'] == 1
    np.testing.assert_equal(
      tf.nest.flatten((after, same)), tf.nest.flatten((state, weights))
    )

  def test_hyperparameters_of_the_server_optimizer(self, process):
    state = process.initialize()
    hparams = process.get_hparams(state)
    assert hparams['learning_rate'] == pytest.approx(0.5)
    hparams['learning_rate'] = np.float32(2)
    state = process.set_hparams(state, hparams)
    _, weights, _ = _apply(
      process, state, self._weights([0, 0], 0), self._weights([1, 2], 0)
    )
    np.testing.assert_allclose(weights.trainable[0], [2, 4])


def test_momentum_starts_afresh_with_the_second_stage(tff_context):
  weights_type = tff.types.to_type(ModelWeights([np.float32], []))
  process = finalizers.build_apply_mean_delta(
    tff.learning.optimizers.build_sgdm(0.5, momentum=0.5),
    weights_type=weights_type,
    aggregate_type=weights_type,
    first_stage_rounds=2,
  )
  state = process.initialize()
  hparams = process.get_hparams(state)
  hparams['learning_rate'] = np.float32(2)
  state = process.set_hparams(state, hparams)
  weights, seen = ModelWeights([np.float32(0)], []), []
  for _ in range(4):
    state, weights, _ = _apply(
      process, state, weights, ModelWeights([np.float32(1)], [])
    )
    seen.append(float(weights.trainable[0]))
  # Twice the velocities 1 and 1.5 of the first stage, and the same again.
  assert seen == [2, 5, 7, 10]
  assert state['round'] == 4
