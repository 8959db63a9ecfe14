"""Effective steps against the formulas of arXiv 2007.07481, and by hand."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers
from tff_ssl.templates import effective_steps


class _Plan:
  """What of a `TrainingPlan` is asked."""

  def __init__(self, optimizer, factors=None):
    self.optimizer = optimizer
    self._factors = factors

  def at_step(self, state, base_rate, round_num, step):
    if self._factors is None:
      return state
    hparams = self.optimizer.get_hparams(state)
    hparams['learning_rate'] = base_rate * tf.constant(self._factors)[step]
    return self.optimizer.set_hparams(state, hparams)


def steps_of(optimizer, num_steps, strength=0.0, factors=None):
  spec = [tf.TensorSpec([], tf.float32)]
  hparams = optimizer.get_hparams(optimizer.initialize(spec))
  hparams = tf.nest.map_structure(tf.constant, hparams)
  return effective_steps.effective_steps(
    _Plan(optimizer, factors),
    tf.constant(num_steps),
    tf.constant(0),
    hparams,
    strength,
  ).numpy()


@pytest.mark.parametrize('num_steps', [0, 1, 2, 7, 40])
def test_the_papers_formulas(num_steps):
  sgdm = tff.learning.optimizers.build_sgdm
  assert steps_of(sgdm(0.3), num_steps) == num_steps
  rho = 0.9
  with_momentum = (num_steps - rho * (1 - rho**num_steps) / (1 - rho)) / (
    1 - rho
  )
  for optimizer in (
    sgdm(0.3, rho),
    optimizers.build_nesterov_sgd(0.3, rho, nesterov=False),
  ):
    np.testing.assert_allclose(
      steps_of(optimizer, num_steps), with_momentum, rtol=1e-5, atol=1e-5
    )
  alpha = 0.3 * 0.5
  np.testing.assert_allclose(
    steps_of(sgdm(0.3), num_steps, strength=0.5),
    (1 - (1 - alpha) ** num_steps) / alpha,
    rtol=1e-5,
  )


def test_nesterov_momentum_by_hand():
  """v: 1, 1.5, 1.75; steps 1 + v / 2: 1.5, 1.75, 1.875."""
  optimizer = optimizers.build_nesterov_sgd(0.3, 0.5)
  np.testing.assert_allclose(steps_of(optimizer, 3), 5.125, rtol=1e-6)


def test_weight_decay_and_learning_rate_change_nothing():
  decaying = optimizers.build_nesterov_sgd(0.3, 0.9, weight_decay=0.1)
  still = optimizers.build_nesterov_sgd(0.0, 0.9)
  plain = optimizers.build_nesterov_sgd(0.3, 0.9)
  expected = steps_of(plain, 5)
  np.testing.assert_allclose(steps_of(decaying, 5), expected, rtol=1e-6)
  np.testing.assert_allclose(steps_of(still, 5), expected, rtol=1e-6)


def test_a_schedule_weighs_the_steps():
  sgd = tff.learning.optimizers.build_sgdm(0.3)
  steps = steps_of(sgd, 3, factors=[1.0, 0.5, 0.25, 9.0])
  np.testing.assert_allclose(steps, 1.75, rtol=1e-6)


@pytest.mark.parametrize(
  'optimizer',
  [
    tff.learning.optimizers.build_adam(0.1),
    tff.learning.optimizers.build_adagrad(0.1),
    tff.learning.optimizers.build_rmsprop(0.1),
    # What a client did with gradients of another norm, a count cannot tell.
    optimizers.clip_gradients(optimizers.build_grouping_sgd(), 0.1),
    optimizers.clip_gradients(optimizers.build_grouping_sgd(), 100.0),
  ],
)
def test_other_optimizers_are_refused(optimizer):
  with pytest.raises(ValueError, match='client_optimizer.*FedX needs.*SGD'):
    effective_steps.check_optimizer(optimizer, 'FedX')


def test_an_optimizer_of_signs_is_refused():
  class Signs(type(tff.learning.optimizers.build_sgdm(0.1))):
    def next(self, state, weights, gradients):
      return super().next(
        state, weights, tf.nest.map_structure(tf.sign, gradients)
      )

  with pytest.raises(ValueError, match='learning_rate'):
    effective_steps.check_optimizer(Signs(0.1), 'FedX')


@pytest.mark.parametrize(
  'optimizer',
  [
    tff.learning.optimizers.build_sgdm(0.0),
    tff.learning.optimizers.build_sgdm(1.0, 0.99),
    optimizers.build_grouping_sgd(),
  ],
)
def test_sgd_is_accepted(optimizer):
  effective_steps.check_optimizer(optimizer, 'FedX')
