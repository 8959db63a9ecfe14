"""The optimizers that the flags of a run ask for."""

import pytest
import tensorflow as tf

from experiments.parts import optimizers


@pytest.mark.parametrize('name', ['sgd', 'adam'])
def test_the_optimizer_is_the_one_of_the_flag(make, name):
  made = make(process='fedul', client_optimizer=name)
  optimizer = optimizers.build(made, 0.02, None)
  state = optimizer.initialize(tf.TensorSpec([2], tf.float32))
  hparams = optimizer.get_hparams(state)
  assert hparams['learning_rate'] == 0.02
  assert ('beta_1' in hparams) == (name == 'adam')


SGD = {'client_optimizer': 'sgd', 'momentum': 0.0, 'weight_decay': 0.0}
ADAM = {'client_optimizer': 'adam'}


@pytest.mark.parametrize(
  'given, rate, norm, weight, gradient, moved',
  [
    (SGD, 1.0, None, 0.0, 30.0, 30.0),
    (SGD, 1.0, 2.0, 0.0, 30.0, 2.0),
    # Without a penalty a gradient of 0 moves nothing; Adam's first step is of
    # the size of its learning rate, whatever the gradient's.
    (ADAM, 0.02, None, 1.0, 0.0, 0.0),
    ({**ADAM, 'weight_decay': 5e-4}, 0.02, None, 1.0, 0.0, 0.02),
  ],
)
def test_norm_and_penalty_reach_the_optimizer(
  make, given, rate, norm, weight, gradient, moved
):
  optimizer = optimizers.build(make(process='fedul', **given), rate, norm)
  state = optimizer.initialize(tf.TensorSpec([1], tf.float32))
  _, after = optimizer.next(
    state, tf.constant([weight]), tf.constant([gradient])
  )
  assert float(after[0]) == pytest.approx(weight - moved, abs=1e-3)
