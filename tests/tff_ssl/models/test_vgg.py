import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models import vgg

# Channels in and out of the eight convolutions of configuration A.
_CHANNELS = (3, 64, 128, 256, 256, 512, 512, 512, 512)
# 9 * (192 + 8,192 + 32,768 + 65,536 + 131,072 + 3 * 262,144) = 9,217,728
_KERNELS = 9 * sum(
  i * o for i, o in zip(_CHANNELS, _CHANNELS[1:], strict=False)
)
# 64 + 128 + 2 * 256 + 4 * 512 = 2,752
_OUTPUTS = sum(_CHANNELS[1:])
_HEAD = 512 * 10 + 10


def _count(weights):
  return sum(int(np.prod(weight.shape)) for weight in weights)


def _pools(model):
  pooling = tf.keras.layers.MaxPool2D
  return [layer for layer in model.layers if isinstance(layer, pooling)]


@pytest.mark.parts
def test_parameter_counts():
  assert (_KERNELS, _OUTPUTS) == (9_217_728, 2_752)
  none = vgg.vgg11()
  assert none.count_params() == _KERNELS + _OUTPUTS + _HEAD == 9_225_610
  batch = vgg.vgg11(norm='batch')
  trainable = _count(batch.trainable_weights)
  assert trainable == _KERNELS + 2 * _OUTPUTS + _HEAD
  assert _count(batch.non_trainable_weights) == 2 * _OUTPUTS
  # The usual VGG11 for CIFAR keeps biases below its normalisation, where they
  # have no effect: 9,231,114.
  assert trainable + _OUTPUTS == 9_231_114
  group = vgg.vgg11(norm='group')
  assert group.count_params() == trainable


@pytest.mark.parametrize(
  'shape, sizes',
  [
    ((32, 32, 3), [16, 8, 4, 2, 1]),
    ((28, 28, 1), [14, 7, 4, 2, 1]),
    ((96, 96, 3), [48, 24, 12, 6, 3]),
  ],
)
def test_poolings(shape, sizes):
  model = vgg.vgg11(shape, 7)
  assert [layer.output_shape[1] for layer in _pools(model)] == sizes
  assert model.output_shape == (None, 7)


def test_order_of_layers():
  names = [type(layer).__name__ for layer in vgg.vgg11(norm='group').layers]
  conv = ['Conv2D', 'GroupNormalization', 'ReLU']
  once, twice = [*conv, 'MaxPooling2D'], [*conv, *conv, 'MaxPooling2D']
  assert names == [
    *('InputLayer', *once, *once, *twice, *twice, *twice),
    *('GlobalAveragePooling2D', 'Dense'),
  ]


def test_pooling_of_odd_sizes_leaves_values_alone():
  # The row and column that the last windows lack must not count as 0.
  pool = _pools(vgg.vgg11((28, 28, 1)))[2]
  x = -np.arange(1, 50, dtype=np.float32).reshape(1, 7, 7, 1)
  assert pool(x).numpy().max() == -1
  assert pool(x).numpy()[0, 3, 3, 0] == -49
