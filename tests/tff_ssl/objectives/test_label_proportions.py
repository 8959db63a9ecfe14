"""Label proportions and virtual adversarial directions, against numpy."""

import collections

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from tff_ssl import objectives, randomness
from tff_ssl.augmentation import views
from tff_ssl.objectives import label_proportions
from tff_ssl.objectives.label_proportions import adversarial_direction
from tff_ssl.templates import prediction

SEED = tf.constant([0, 7])
PLAIN = views.PlainViews()


class _Linear:
  """Logits are x times the one weight; counts its train-mode passes."""

  @staticmethod
  def predict(trainable, non_trainable, x, training, seed=None):
    del training, seed
    return tf.tanh(x @ trainable[0]), [non_trainable[0] + 1]


def batch_of(size=6, sets=4, **more):
  rng = np.random.default_rng(size)
  priors = rng.dirichlet(np.ones(3), sets).astype(np.float32)
  return collections.OrderedDict(
    x=tf.constant(rng.uniform(size=(size, 5)), tf.float32),
    y=tf.fill([size], 2),
    true_y=tf.constant(rng.integers(0, 3, size), tf.int32),
    class_priors=tf.constant(priors),
    set_shares=tf.constant([0.25, 0, 0.5, 0.25]),
    **more,
  )


def evaluate(objective, batch):
  rng = np.random.default_rng(3)
  weights = [tf.constant(rng.normal(size=(5, 3)), tf.float32)]
  with tf.GradientTape() as tape:
    tape.watch(weights)
    predict = prediction.Predictor(_Linear, weights, [tf.constant(0)])
    loss, metrics = objective(predict, batch, None, SEED)
  logits = np.tanh(batch['x'].numpy() @ weights[0].numpy())
  gradient = tape.gradient(loss, weights)[0].numpy()
  return float(loss), metrics, gradient, logits, int(predict.non_trainable[0])


def by_numpy(priors, logits):
  mean = scipy.special.softmax(logits, axis=1).mean(axis=0)
  return -(priors * np.log(mean)).sum()


@pytest.mark.parametrize('size', [1, 6, 300])
def test_loss_is_the_cross_entropy_of_the_mean_prediction(size):
  rng = np.random.default_rng(size)
  logits = rng.normal(0, 3, (size, 10)).astype(np.float32)
  priors = rng.dirichlet(np.ones(10)).astype(np.float32)
  loss = label_proportions.proportion_loss(priors, tf.constant(logits))
  assert float(loss) == pytest.approx(by_numpy(priors, logits), rel=1e-5)


def test_loss_is_finite_where_nobody_is_given_a_class():
  logits = tf.constant([[0.0, 300.0], [0.0, 500.0]])
  with tf.GradientTape() as tape:
    tape.watch(logits)
    loss = label_proportions.proportion_loss(tf.constant([0.5, 0.5]), logits)
  # log mean = -300 - log 2 of the first class, 0 of the second.
  assert float(loss) == pytest.approx((300 + np.log(2)) / 2)
  np.testing.assert_allclose(
    tape.gradient(loss, logits), [[-0.5, 0.5], [0, 0]], atol=1e-6
  )


def test_a_set_is_compared_with_its_own_priors():
  batch = batch_of()
  loss, metrics, _, logits, _ = evaluate(
    objectives.LabelProportions(PLAIN), batch
  )
  expected = by_numpy(batch['class_priors'][2].numpy(), logits)
  assert loss == pytest.approx(expected, rel=1e-5)
  assert tuple(map(float, metrics['loss'])) == (loss, 1)
  right = (logits.argmax(axis=1) == batch['true_y'].numpy()).sum()
  assert tuple(map(float, metrics['accuracy'])) == (right, 6)


def test_a_set_without_priors_is_not_finite():
  batch = batch_of()
  batch['class_priors'] *= [[1.0], [1.0], [0.0], [1.0]]
  loss, metrics, *_ = evaluate(objectives.LabelProportions(PLAIN), batch)
  assert np.isnan(loss) and np.isnan(metrics['loss'][0])


def vat(**arguments):
  return objectives.VirtualAdversarialProportions(PLAIN, **arguments)


def test_no_weight_is_fedllp_exactly():
  batch = batch_of()
  loss, _, gradient, *_ = evaluate(objectives.LabelProportions(PLAIN), batch)
  without = evaluate(vat(vat_weight=0), batch)
  assert without[0] == loss
  np.testing.assert_array_equal(without[2], gradient)


def test_consistency_is_added_with_its_weight():
  batch = batch_of()
  plain, _, gradient, *_ = evaluate(objectives.LabelProportions(PLAIN), batch)
  arguments = {'vat_radius': 0.5}
  light, metrics, first, _, passes = evaluate(
    vat(vat_weight=1.0, **arguments), batch
  )
  heavy, _, second, *_ = evaluate(vat(vat_weight=3.0, **arguments), batch)
  divergence = float(metrics['vat_divergence'][0]) / 6
  assert divergence > 1e-3
  assert light - plain == pytest.approx(divergence, rel=1e-3)
  assert heavy - plain == pytest.approx(3 * divergence, rel=1e-3)
  np.testing.assert_allclose(
    second - gradient, 3 * (first - gradient), rtol=1e-3, atol=1e-6
  )
  # Moving statistics follow the clean images, once.
  assert passes == 1


def test_consistency_has_no_gradient_by_the_clean_prediction():
  batch = batch_of()
  *_, without, logits, _ = evaluate(objectives.LabelProportions(PLAIN), batch)
  *_, gradient, _, _ = evaluate(vat(vat_weight=1.0, vat_radius=0.5), batch)
  kernel = tf.constant(np.random.default_rng(3).normal(size=(5, 3)), tf.float32)
  _, direction = adversarial_direction(
    lambda x: tf.tanh(x @ kernel), batch['x'], randomness.fold_in(SEED, 2)
  )
  with tf.GradientTape() as tape:
    tape.watch(kernel)
    perturbed = tf.tanh((batch['x'] + 0.5 * direction) @ kernel)
    # To a target that is a number, cross-entropy has the gradient of KL.
    loss = tf.nn.softmax_cross_entropy_with_logits(
      scipy.special.softmax(logits, axis=1), perturbed
    )
  expected = tape.gradient(loss, kernel) / len(logits)
  assert np.abs(expected).max() > 1e-3
  np.testing.assert_allclose(gradient - without, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
  'step, factor',
  # exp(-5 (1 - t / 60)^2) of three sets that are not empty.
  [(0, 0.0067379), (2, 0.0093513), (60, 1.0)],
)
def test_published_ramp(step, factor):
  batch = batch_of(step=tf.constant(step))
  plain = evaluate(objectives.LabelProportions(PLAIN), batch)[0]
  full, ramped = (
    evaluate(vat(vat_weight=100.0, vat_radius=0.5, vat_ramp=ramp), batch)[0]
    for ramp in ('none', 'published_code')
  )
  assert (ramped - plain) / (full - plain) == pytest.approx(factor, rel=1e-4)


_START_SEED = tf.constant([4, 5])


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
  logits, direction = adversarial_direction(forward, x, _START_SEED)
  np.testing.assert_allclose(logits, forward(x), rtol=1e-5)
  start = unit(tf.random.stateless_normal(x.shape, _START_SEED).numpy())
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
  _, direction = adversarial_direction(forward, x, _START_SEED)
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
  _, direction = adversarial_direction(constant, images(), _START_SEED)
  np.testing.assert_array_equal(direction, np.zeros((16, 28, 28, 1)))
