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
