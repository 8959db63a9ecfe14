"""Statistics of given data take the place of moving averages."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.augmentation import views
from tff_ssl.models import dense, functional
from tff_ssl.templates.server import static_statistics

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
  statistics = static_statistics.StaticStatistics.of(model, views.PlainViews())
  weights = _weights(model)
  new = statistics.recompute(weights, tf.constant(_data(9)), _SEED)
  for momentum, before, after in zip(
    found, weights.non_trainable, new.non_trainable, strict=True
  ):
    assert np.array_equal(before, after) == (momentum is None)
  assert not static_statistics.StaticStatistics.of(
    functional.from_keras(lambda: dense.dense((3,), 2)), views.PlainViews()
  ).has_any


@pytest.mark.parametrize('momentum', [0.9, 0.99])
def test_one_pass_gives_the_statistics_of_the_data(momentum):
  model = _normed(momentum)
  statistics = static_statistics.StaticStatistics.of(model, views.PlainViews())
  weights, x = _weights(model), _data(200)
  new = statistics.recompute(weights, tf.constant(x), _SEED)
  gamma, beta, kernel, bias = (w.numpy() for w in weights.trainable[:4])
  normed = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * gamma + beta
  hidden = np.maximum(normed @ kernel + bias, 0)
  expected = [x.mean(0), x.var(0), hidden.mean(0), hidden.var(0)]
  for actual, value in zip(new.non_trainable, expected, strict=True):
    np.testing.assert_allclose(actual, value, rtol=1e-3, atol=1e-3)
  for before, after in zip(weights.trainable, new.trainable, strict=True):
    np.testing.assert_array_equal(before, after)


def test_minibatches_weigh_by_their_examples():
  model = _normed(0.9)
  x = _data(7)
  statistics = static_statistics.StaticStatistics.of(
    model, views.PlainViews(), batch_size=3
  )
  new = statistics.recompute(_weights(model), tf.constant(x), _SEED)
  parts = [x[:3], x[3:6], x[6:]]
  for place, moment in ((0, np.mean), (1, np.var)):
    expected = sum(len(p) / 7 * moment(p, axis=0) for p in parts)
    np.testing.assert_allclose(
      new.non_trainable[place], expected, rtol=1e-4, atol=1e-4
    )


def test_no_examples_leave_the_statistics_as_they_are():
  model = _normed(0.9)
  weights = _weights(model)
  statistics = static_statistics.StaticStatistics.of(model, views.PlainViews())
  new = statistics.recompute(weights, tf.zeros([0, 3]), _SEED)
  tf.nest.map_structure(
    np.testing.assert_array_equal, weights.non_trainable, new.non_trainable
  )


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
