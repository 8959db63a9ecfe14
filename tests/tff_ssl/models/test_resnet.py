import re

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.models import normalization, resnet

# ResNet-18 at 32x32x3 and 10 classes. Weights of the 3x3 convolutions over 9:
#   stem      3*64                           =       192
#   stage 64  4 * 64*64                      =    16,384
#   stage 128 64*128 + 3 * 128*128           =    57,344
#   stage 256 128*256 + 3 * 256*256          =   229,376
#   stage 512 256*512 + 3 * 512*512          =   917,504
# of the 1x1 shortcuts 64*128 + 128*256 + 256*512 = 172,032
_KERNELS_18 = 9 * (192 + 16_384 + 57_344 + 229_376 + 917_504) + 172_032
# Outputs of all convolutions: 64 + 4 * 64 + (4 + 1) * (128 + 256 + 512)
_OUTPUTS_18 = 4_800
# ResNet-9: 9 * (3*64 + 64*128 + 2 * 128*128 + 128*256 + 256*512 + 2 * 512*512)
_KERNELS_9 = 9 * (192 + 8_192 + 32_768 + 32_768 + 131_072 + 524_288)
_OUTPUTS_9 = 64 + 3 * 128 + 256 + 3 * 512
_HEAD = 512 * 10 + 10


@pytest.mark.parametrize(
  'build, kernels, outputs',
  [
    (resnet.resnet9, _KERNELS_9, _OUTPUTS_9),
    (resnet.resnet18, _KERNELS_18, _OUTPUTS_18),
  ],
)
def test_parameter_counts(build, kernels, outputs):
  # A bias, or a scale and an offset; batch has two moving averages as well.
  for norm, per_output in (('none', 1), ('group', 2), ('batch', 4)):
    expected = kernels + per_output * outputs + _HEAD
    assert build(norm=norm).count_params() == expected


def test_published_parameter_counts():
  # Of the ResNet-18 for CIFAR in PyTorch, and of the ResNet-9 with
  # normalisation (6,573,120 in that of the DAWNBench, whose head has no bias).
  assert _KERNELS_18 + 2 * _OUTPUTS_18 + _HEAD == 11_173_962
  assert _KERNELS_9 + 2 * _OUTPUTS_9 + _HEAD == 6_573_130


@pytest.mark.parametrize(
  'build, count', [(resnet.resnet9, 6_573_130), (resnet.resnet18, 11_173_962)]
)
@pytest.mark.parametrize('shape', [(28, 28, 1), (96, 96, 3)])
def test_other_sizes_change_the_stem_only(build, count, shape):
  model = build(shape, norm='group')
  assert model.output_shape == (None, 10)
  assert model.count_params() == count - 9 * 64 * (3 - shape[2])


class _Reference:
  """The convolutions of a Keras model in numpy, in order of their creation."""

  def __init__(self, model):
    rng = np.random.default_rng(0)
    # Not the initial weights, some of which are 0.
    for layer in model.layers:
      layer.set_weights([_draw(rng, w.shape) for w in layer.get_weights()])
    self._convolutions = _created(model, tf.keras.layers.Conv2D)
    self._norms = _created(model, normalization.GroupNormalization)

  def conv(self, x, stride=1):
    kernel, *bias = next(self._convolutions).get_weights()
    size = kernel.shape[0]
    margin = [size // 2] * 2
    padded = np.pad(x, [(0, 0), margin, margin, (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(
      padded, (size, size), axis=(1, 2)
    )[:, ::stride, ::stride]
    x = np.tensordot(windows, kernel, ([4, 5, 3], [0, 1, 2])) + sum(bias)
    for norm in [] if bias else [next(self._norms)]:
      gamma, beta = norm.get_weights()
      grouped = x.reshape(len(x), -1, 32, x.shape[-1] // 32)
      grouped = grouped - grouped.mean((1, 3), keepdims=True)
      grouped /= np.sqrt(grouped.var((1, 3), keepdims=True) + 1e-5)
      x = grouped.reshape(x.shape) * gamma + beta
    return x

  def residual(self, x):
    return x + self.relu(self.relu(x))

  def relu(self, x, stride=1):
    return np.maximum(self.conv(x, stride), 0)

  def basic_block(self, x, stride, has_projection):
    branch = self.conv(self.relu(x, stride))
    return np.maximum(
      branch + (self.conv(x, stride) if has_projection else x), 0
    )


def _draw(rng, shape):
  if len(shape) == 1:
    return rng.normal(0.5, 0.5, shape)
  return rng.normal(0, np.prod(shape[:-1]) ** -0.5, shape)


def _created(model, layer_class):
  found = [layer for layer in model.layers if isinstance(layer, layer_class)]
  number = lambda layer: int((re.findall(r'_(\d+)$', layer.name) or [0])[0])
  return iter(sorted(found, key=number))


def _pool(x):
  batch, height, width, channels = x.shape
  return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))


@pytest.mark.parametrize('norm', ['none', 'group'])
def test_resnet9_equals_numpy(norm):
  model = resnet.resnet9((16, 24, 1), 5, norm)
  numpy = _Reference(model)
  images = np.random.default_rng(1).normal(size=(2, 16, 24, 1))
  x = numpy.residual(_pool(numpy.relu(numpy.relu(images))))
  x = numpy.residual(_pool(numpy.relu(_pool(numpy.relu(x)))))
  kernel, bias = model.layers[-1].get_weights()
  expected = x.max((1, 2)) @ kernel + bias
  np.testing.assert_allclose(model(images), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize('norm', ['none', 'group'])
def test_resnet18_equals_numpy(norm):
  # Odd sizes too: 18 and 12 are strided to 9, 5, 3 and 6, 3, 2.
  model = resnet.resnet18((18, 12, 3), 5, norm)
  numpy = _Reference(model)
  images = np.random.default_rng(1).normal(size=(2, 18, 12, 3))
  x = numpy.relu(images)
  for stage in range(4):
    stride = 1 if stage == 0 else 2
    x = numpy.basic_block(x, stride, has_projection=stage > 0)
    x = numpy.basic_block(x, 1, has_projection=False)
  kernel, bias = model.layers[-1].get_weights()
  expected = x.mean((1, 2)) @ kernel + bias
  np.testing.assert_allclose(model(images), expected, rtol=1e-3, atol=1e-3)


def test_resnet18_without_normalisation_starts_by_the_rules_of_fixup():
  model = resnet.resnet18()
  kernels = [layer.kernel for layer in _created(model, tf.keras.layers.Conv2D)]
  spreads = [float(tf.math.reduce_std(kernel)) for kernel in kernels]
  fan_in = [np.prod(kernel.shape[:-1]) for kernel in kernels]
  gains = np.square(spreads) * fan_in
  # Of a block the first convolution, the last, and that of the shortcut: with
  # 8 blocks Fixup's rule is 2 / 8, 0 and He's 2.
  plain, projected = [0.25, 0.0], [0.25, 0.0, 2.0]
  stage = [*projected, *plain]
  expected = [2.0, *plain, *plain, *stage, *stage, *stage]
  assert gains.tolist() == pytest.approx(expected, rel=0.1)
