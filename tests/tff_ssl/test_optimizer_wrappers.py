"""Optimizers around others, against those and numpy."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizer_wrappers, optimizers

_SHAPES = [(3, 2), (4,), ()]


def _specs():
  return [tf.TensorSpec(shape, tf.float32) for shape in _SHAPES]


def _start():
  rng = np.random.default_rng(0)
  return [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]


def _gradients(step):
  rng = np.random.default_rng(100 + step)
  return [rng.normal(size=shape).astype(np.float32) for shape in _SHAPES]


def _run(optimizer, steps=6):
  weights = [tf.constant(w) for w in _start()]
  state = optimizer.initialize(_specs())
  for step in range(steps):
    gradients = [tf.constant(g) for g in _gradients(step)]
    state, weights = optimizer.next(state, weights, gradients)
  return state, weights


def _assert_close(actual, expected):
  for a, e in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


class TestRestWithoutGradient:
  @pytest.mark.parametrize(
    'optimizer',
    [
      optimizers.build_nesterov_sgd(0.1, 0.9, weight_decay=0.01),
      tff.learning.optimizers.build_sgdm(0.1, 0.9),
      tff.learning.optimizers.build_adagrad(0.1),
    ],
    ids=['nesterov', 'sgdm', 'adagrad'],
  )
  def test_a_weight_knows_of_no_step_without_gradient(self, optimizer):
    """The first weight has gradients in even steps only."""
    resting = optimizer_wrappers.rest_without_gradient(optimizer)
    weights = [tf.constant(w) for w in _start()]
    state = resting.initialize(_specs())
    for step in range(6):
      gradients = [tf.constant(g) for g in _gradients(step)]
      if step % 2:
        gradients[0] = tf.zeros_like(gradients[0])
      state, weights = resting.next(state, weights, gradients)

    _, expected = _run(optimizer)
    first = [tf.constant(_start()[0])]
    alone = optimizer.initialize(_specs()[:1])
    for step in (0, 2, 4):
      gradient = [tf.constant(_gradients(step)[0])]
      alone, first = optimizer.next(alone, first, gradient)
    _assert_close(weights, [*first, *expected[1:]])

  def test_hyperparameters_are_those_of_the_optimizer(self):
    optimizer = optimizer_wrappers.rest_without_gradient(
      optimizers.build_nesterov_sgd(0.1, 0.9)
    )
    state = optimizer.set_hparams(
      optimizer.initialize(_specs()), {'learning_rate': 0.5}
    )
    assert optimizer.get_hparams(state)['learning_rate'] == 0.5
    assert list(optimizer.get_hparams(state)) == ['learning_rate', 'momentum']


@pytest.mark.parametrize('max_norm', [0.5, 100.0])
def test_clipping_scales_all_gradients_together(max_norm):
  plain = optimizers.build_nesterov_sgd(0.1, 0.9, weight_decay=0.05)
  clipped = optimizer_wrappers.clip_gradients(plain, max_norm)
  _, weights = _run(clipped, steps=3)
  expected = [tf.constant(w) for w in _start()]
  state = plain.initialize(_specs())
  for number in range(3):
    gradients = _gradients(number)
    norm = np.sqrt(sum(np.square(g).sum() for g in gradients))
    assert 0.5 < norm < 100
    scale = min(1, max_norm / norm)
    state, expected = plain.next(
      state, expected, [tf.constant(np.float32(scale * g)) for g in gradients]
    )
  _assert_close(weights, expected)


def test_a_clipped_optimizer_keeps_state_and_hyperparameters():
  plain = optimizers.build_nesterov_sgd(0.1, 0.9)
  clipped = optimizer_wrappers.clip_gradients(plain, 1.0)
  state = clipped.initialize(_specs())
  assert clipped.get_hparams(state) == plain.get_hparams(state)
  changed = clipped.set_hparams(state, {'learning_rate': 0.5})
  assert changed['learning_rate'] == 0.5 and changed['momentum'] == 0.9
  gradients = [tf.constant(_gradients(0)[0]), None, tf.constant(1.0)]
  _, weights = clipped.next(
    state, [tf.constant(w) for w in _start()], gradients
  )
  np.testing.assert_array_equal(weights[1], _start()[1])


@pytest.mark.parametrize('value', [0.0, -1.0, float('nan'), float('inf')])
def test_a_norm_to_clip_to_is_positive(value):
  with pytest.raises(ValueError, match=f'max_norm is {value}'):
    optimizer_wrappers.clip_gradients(optimizers.build_paper_sgd(), value)
