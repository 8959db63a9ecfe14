"""Statistics of given data take the place of moving averages."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import assert_close, assert_same

from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates import static_statistics

_SEED = tf.constant([0, 1])


def _normed(momentum, frozen=False):
  """Returns an affine layer between two batch normalisations."""

  def build():
    layers = tf.keras.layers
    norm = lambda: layers.BatchNormalization(momentum=momentum)
    middle = layers.Dense(4, 'relu', trainable=not frozen)
    return tf.keras.Sequential(
      [layers.Input((3,)), norm(), middle, norm(), layers.Dense(2)]
    )

  return functional.from_keras(build)


def _weights(model):
  return tf.nest.map_structure(tf.constant, model.initial_weights(2))


def _recompute(model, x, **options):
  """Returns the weights before and after."""
  weights = _weights(model)
  statistics = static_statistics.StaticStatistics(
    model, views.PlainViews(), **options
  )
  return weights, statistics.recompute(weights, tf.constant(x), _SEED)


def _data(size):
  rng = np.random.default_rng(1)
  return rng.normal([1, -2, 3], [0.5, 1, 4], (size, 3)).astype(np.float32)


@pytest.mark.parametrize('momentum', [0.0, 0.7, 0.9, 0.99, 0.999])
def test_momenta_are_found(momentum):
  found = static_statistics.find_momenta(_normed(momentum))
  assert found == (momentum,) * 4


def test_what_training_does_not_move_is_left_alone():
  # The weights of the frozen layer stand among the non-trainable ones.
  model = _normed(0.9, frozen=True)
  found = static_statistics.find_momenta(model)
  assert found.count(None) == 2
  assert [m for m in found if m is not None] == [0.9] * 4
  weights, new = _recompute(model, _data(9))
  for momentum, before, after in zip(
    found, weights.non_trainable, new.non_trainable, strict=True
  ):
    assert np.array_equal(before, after) == (momentum is None)
  assert not static_statistics.StaticStatistics(
    functional.from_keras(lambda: dense.dense((3,), 2)), views.PlainViews()
  ).has_any


@pytest.mark.parametrize('momentum', [0.9, 0.99])
def test_one_pass_gives_the_statistics_of_the_data(momentum):
  x = _data(200)
  weights, new = _recompute(_normed(momentum), x)
  gamma, beta, kernel, bias = (w.numpy() for w in weights.trainable[:4])
  normed = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * gamma + beta
  hidden = np.maximum(normed @ kernel + bias, 0)
  expected = [x.mean(0), x.var(0), hidden.mean(0), hidden.var(0)]
  assert_close(new.non_trainable, expected, rtol=1e-3, atol=1e-3)
  assert_same(weights.trainable, new.trainable)


def test_minibatches_weigh_by_their_examples():
  x = _data(7)
  _, new = _recompute(_normed(0.9), x, batch_size=3)
  parts = [x[:3], x[3:6], x[6:]]
  for place, moment in ((0, np.mean), (1, np.var)):
    expected = sum(len(p) / 7 * moment(p, axis=0) for p in parts)
    np.testing.assert_allclose(
      new.non_trainable[place], expected, rtol=1e-4, atol=1e-4
    )


def test_no_examples_leave_the_statistics_as_they_are():
  weights, new = _recompute(_normed(0.9), _data(0))
  assert_same(weights.non_trainable, new.non_trainable)


def test_other_movements_are_refused():
  spec = tf.TensorSpec([2], tf.float32)

  def predict(trainable, non_trainable, x, *, training, seed=None):
    return x, [non_trainable[0] * 2]

  model = functional.FunctionalModel(
    lambda seed: tff.learning.models.ModelWeights([], [np.ones(2, np.float32)]),
    predict,
    tf.TensorSpec([None, 2], tf.float32),
    tff.learning.models.ModelWeights([], [spec]),
    False,
  )
  with pytest.raises(ValueError, match='no static statistics'):
    static_statistics.find_momenta(model)
