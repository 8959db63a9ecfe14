"""The virtual adversarial direction: float64 differences, and its purpose."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.objectives.maths import virtual_adversarial

SEED = tf.constant([4, 5])


def network(inputs, seed=0):
  """A small random network, in the precision of what it is given."""
  rng = np.random.default_rng(seed)
  sizes = (inputs, 50, 30, 10)
  layers = [
    rng.normal(size=pair) * np.sqrt(2 / pair[0])
    for pair in zip(sizes[:-1], sizes[1:], strict=True)
  ]

  def forward(x):
    x = tf.reshape(x, [-1, inputs])
    for layer in layers[:-1]:
      x = tf.nn.relu(x @ tf.cast(layer, x.dtype))
    return x @ tf.cast(layers[-1], x.dtype)

  return forward


def unit(values):
  norms = np.sqrt((values**2).sum(axis=(1, 2, 3), keepdims=True))
  return values / norms


def images(size=16, side=28):
  x = np.random.default_rng(1).uniform(size=(size, side, side, 1))
  return tf.constant(x, tf.float32)


def divergences(forward, x, direction, radius):
  """KL in float64, by the definition."""
  p, q = (
    tf.nn.softmax(forward(tf.constant(z, tf.float64))).numpy()
    for z in (x, x + radius * direction)
  )
  return (p * np.log(p / q)).sum(axis=1)


def test_it_is_the_power_iteration_of_a_small_step():
  forward, x = network(784), images()
  logits, direction = virtual_adversarial.direction(forward, x, SEED)
  np.testing.assert_allclose(logits, forward(x), rtol=1e-5)
  start = unit(tf.random.stateless_normal(x.shape, SEED).numpy())
  point = tf.Variable(tf.cast(x, tf.float64) + 1e-6 * start)
  clean = tf.nn.softmax(forward(tf.cast(x, tf.float64)))
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(
      clean * (tf.math.log(clean) - tf.nn.log_softmax(forward(point)))
    )
  expected = unit(tape.gradient(loss, point).numpy())
  np.testing.assert_allclose(direction, expected, atol=1e-4)


@pytest.mark.parametrize('radius', [1e-2, 1.0])
def test_predictions_change_more_than_in_random_directions(radius):
  forward, x = network(784), images()
  _, direction = virtual_adversarial.direction(forward, x, SEED)
  np.testing.assert_allclose(
    np.sqrt((direction.numpy() ** 2).sum(axis=(1, 2, 3))), 1, rtol=1e-5
  )
  rng = np.random.default_rng(2)
  random = [
    divergences(forward, x.numpy(), unit(rng.normal(size=x.shape)), radius)
    for _ in range(5)
  ]
  adversarial = divergences(forward, x.numpy(), direction.numpy(), radius)
  assert (adversarial > np.max(random, axis=0)).all()
  assert adversarial.mean() > 10 * np.mean(random)


def test_no_change_has_no_direction():
  constant = lambda x: tf.reduce_sum(0 * x, axis=[2, 3]) + tf.ones([1, 28])
  _, direction = virtual_adversarial.direction(constant, images(), SEED)
  np.testing.assert_array_equal(direction, np.zeros((16, 28, 28, 1)))
