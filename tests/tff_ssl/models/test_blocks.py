import numpy as np
import pytest
import tensorflow as tf
from scipy import signal

from tff_ssl.models import blocks


def _layer(shape, **arguments):
  inputs = tf.keras.Input(shape)
  outputs = blocks.conv_norm(inputs, 3, 'none', **arguments)
  return tf.keras.Model(inputs, outputs)


@pytest.mark.parametrize('stride', [1, 2])
@pytest.mark.parametrize('size', [1, 3])
@pytest.mark.parametrize('height, width', [(8, 6), (7, 9)])
def test_pads_all_sides_alike(height, width, size, stride):
  # scipy pads all sides of 'same' alike; its every second value is PyTorch's
  # convolution of stride 2, padding size // 2.
  model = _layer((height, width, 2), size=size, stride=stride)
  rng = np.random.default_rng(0)
  kernel = rng.normal(size=(size, size, 2, 3)).astype(np.float32)
  bias = rng.normal(size=3).astype(np.float32)
  model.set_weights([kernel, bias])
  x = rng.normal(size=(1, height, width, 2)).astype(np.float32)
  expected = [
    sum(
      signal.correlate2d(x[0, :, :, i], kernel[:, :, i, o], mode='same')
      for i in range(2)
    )
    + bias[o]
    for o in range(3)
  ]
  expected = np.stack(expected, axis=-1)[::stride, ::stride]
  np.testing.assert_allclose(model(x)[0], expected, atol=1e-5)


def test_deviation_of_the_weights():
  for gain in (2.0, 1.0, 0.25):
    inputs = tf.keras.Input((4, 4, 64))
    model = tf.keras.Model(
      inputs, blocks.conv_norm(inputs, 128, 'none', gain=gain)
    )
    kernel, bias = model.get_weights()
    # 3 * 3 * 64 inputs to a unit; 73,728 draws know the deviation to 0.3%.
    assert kernel.std() == pytest.approx(np.sqrt(gain / 576), rel=0.02)
    assert not bias.any()
  assert not _layer((4, 4, 2), gain=0).get_weights()[0].any()


def test_bias_only_without_normalisation():
  inputs = tf.keras.Input((4, 4, 2))
  names = {
    norm: [
      weight.name.rpartition('/')[2]
      for weight in tf.keras.Model(
        inputs, blocks.conv_norm(inputs, 64, norm)
      ).trainable_weights
    ]
    for norm in ('none', 'batch', 'group')
  }
  assert names['none'] == ['kernel:0', 'bias:0']
  assert names['batch'] == names['group'] == ['kernel:0', 'gamma:0', 'beta:0']


def test_classifier_starts_unsure():
  inputs = tf.keras.Input((512,))
  model = tf.keras.Model(inputs, blocks.classifier(inputs, 10))
  kernel, bias = model.get_weights()
  assert kernel.std() == pytest.approx(0.01, rel=0.05)
  assert not bias.any()


def test_the_smallest_images_are_accepted():
  blocks.check_image_network((8, 9, 1), 1, 'batch', smallest=8)


@pytest.mark.parametrize(
  'input_shape', [(8, 8), (7, 8, 3), (8, 7, 3), (8, 8, 0), (2, 8, 8, 3)]
)
def test_other_shapes_are_refused(input_shape):
  with pytest.raises(ValueError, match='input_shape is .* at least 8 by 8'):
    blocks.check_image_network(input_shape, 10, 'none', smallest=8)


def _both(x, groups, epsilon=1e-3):
  """Our layer's and Keras' outputs and gradients, with the same parameters."""
  rng = np.random.default_rng(1)
  gamma, beta = rng.normal(size=(2, x.shape[-1])).astype(np.float32)
  target = tf.constant(rng.normal(size=x.shape).astype(np.float32))
  results = []
  for layer in (
    blocks.GroupNormalization(groups, epsilon),
    tf.keras.layers.GroupNormalization(groups, epsilon=epsilon),
  ):
    layer.build(x.shape)
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
      tape.watch(inputs)
      outputs = layer(inputs)
      loss = tf.reduce_sum(outputs * target)
    gradients = tape.gradient(loss, [inputs, layer.gamma, layer.beta])
    results.append([outputs, *gradients])
  return results


@pytest.mark.parametrize(
  'shape, groups',
  [((4, 6, 5, 64), 32), ((3, 4, 4, 12), 3), ((5, 20), 4), ((2, 3, 3, 3, 8), 1)],
)
def test_group_normalization_equals_keras(shape, groups):
  x = np.random.default_rng(0).normal(3.0, 2.0, shape).astype(np.float32)
  for ours, keras in zip(*_both(x, groups), strict=True):
    np.testing.assert_allclose(ours, keras, rtol=1e-5, atol=1e-5)


def test_large_mean_does_not_cancel():
  # At mean 1000 and deviation 1, squares in float32 would lose the variance.
  x = np.random.default_rng(0).normal(1000, 1, (2, 8, 8, 8)).astype(np.float32)
  layer = blocks.GroupNormalization(2)
  grouped = x.astype(np.float64).reshape(2, 64, 2, 4)
  mean = grouped.mean(axis=(1, 3), keepdims=True)
  expected = (grouped - mean) / np.sqrt(
    grouped.var(axis=(1, 3), keepdims=True) + 1e-5
  )
  np.testing.assert_allclose(layer(x), expected.reshape(x.shape), atol=1e-3)


@pytest.mark.parametrize('wrap', [lambda f: f, tf.function])
def test_second_derivatives_match_finite_differences(wrap):
  layer = blocks.GroupNormalization(2, epsilon=1e-2, dtype='float64')
  rng = np.random.default_rng(0)
  x, target, direction = (rng.normal(size=(2, 3, 2, 6)) for _ in 'abc')
  layer(x)
  layer.set_weights(rng.normal(size=(2, 6)))
  weights = layer.trainable_weights

  def gradient(point):
    with tf.GradientTape() as tape:
      tape.watch(point)
      loss = tf.reduce_sum(layer(point) ** 2 * target)
    return tape.gradient(loss, point)

  @wrap
  def curvature(point):
    with tf.GradientTape() as tape:
      tape.watch(point)
      slope = tf.reduce_sum(gradient(point) * direction)
    return tape.gradient(slope, [point, *weights])

  by_point, *by_weights = curvature(tf.constant(x))
  step = 1e-5
  measured = (
    gradient(tf.constant(x + step * direction))
    - gradient(tf.constant(x - step * direction))
  ) / (2 * step)
  np.testing.assert_allclose(by_point, measured, atol=1e-6)
  for weight, exact in zip(weights, by_weights, strict=True):
    value, slopes = weight.numpy(), []
    for sign in (1, -1):
      # One entry suffices: channels differ by their place in the group only.
      weight.assign(value + sign * step * np.eye(6)[0])
      slopes.append(np.sum(gradient(tf.constant(x)) * direction))
    weight.assign(value)
    measured = (slopes[0] - slopes[1]) / (2 * step)
    assert float(exact[0]) == pytest.approx(measured, abs=1e-6)


@pytest.mark.parametrize('channels, groups', [(16, 16), (48, 16), (64, 32)])
def test_groups_are_reduced_to_a_divisor(channels, groups):
  x = np.random.default_rng(0).normal(size=(2, 5, 5, channels))
  x = x.astype(np.float32)
  np.testing.assert_allclose(
    blocks.GroupNormalization(32, 1e-3)(x),
    tf.keras.layers.GroupNormalization(groups)(x),
    atol=1e-5,
  )


def test_takes_an_empty_batch_and_refuses_groups_of_one_value():
  layer = blocks.GroupNormalization()
  assert layer(tf.zeros([0, 4, 4, 32])).shape == (0, 4, 4, 32)
  with pytest.raises(ValueError, match='one value'):
    blocks.GroupNormalization()(tf.zeros([2, 32]))


def test_config_round_trip():
  layer = blocks.GroupNormalization(4, 1e-2, name='norm')
  copy = blocks.GroupNormalization.from_config(layer.get_config())
  assert copy.get_config() == layer.get_config()
  assert layer.get_config()['groups'] == 4


def test_make_norm():
  x = np.random.default_rng(0).normal(2, 3, (8, 4, 4, 32)).astype(np.float32)
  np.testing.assert_array_equal(blocks.make_norm('none')(x), x)
  batch = blocks.make_norm('batch')
  outputs = batch(x, training=True)
  np.testing.assert_allclose(
    outputs,
    (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5),
    atol=1e-4,
  )
  # PyTorch's momentum 0.1: the average takes a tenth of the batch's mean.
  np.testing.assert_allclose(
    batch.moving_mean, 0.1 * x.mean((0, 1, 2)), atol=1e-5
  )
  assert isinstance(blocks.make_norm('group'), blocks.GroupNormalization)
  with pytest.raises(ValueError, match='none.*batch.*group.*layer'):
    blocks.make_norm('layer')


@pytest.mark.parametrize('mean', [0.0, 3.0])
def test_half_precision_inputs_have_exact_moments(mean):
  """Against Keras in float32, within the rounding of bfloat16 (2 ** -8)."""
  rng = np.random.default_rng(2)
  x = tf.cast(rng.normal(mean, 1.0, size=(4, 8, 8, 64)), tf.bfloat16)
  ours = blocks.GroupNormalization(dtype='mixed_bfloat16')(x)
  theirs = tf.keras.layers.GroupNormalization(epsilon=1e-5)(
    tf.cast(x, tf.float32)
  )
  assert ours.dtype == tf.bfloat16
  error = np.abs(tf.cast(ours, tf.float32) - theirs)
  assert error.max() < 2**-8 * (1 + np.abs(theirs).max())
  assert abs(float(tf.reduce_mean(tf.cast(ours, tf.float32)))) < 1e-3
