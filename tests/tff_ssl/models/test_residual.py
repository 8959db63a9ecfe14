import re

import numpy as np
import pytest
import tensorflow as tf
from scipy import signal

from tff_ssl.models import blocks, residual

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
# ResNet-34, over 9 again: 192 + 6 * 64*64 + 64*128 + 7 * 128*128 + 128*256
# + 11 * 256*256 + 256*512 + 5 * 512*512, and the same shortcuts
_KERNELS_34 = 9 * (192 + 24_576 + 122_880 + 753_664 + 1_441_792) + 172_032
# Outputs: 64 + 6 * 64 + (8 + 1) * 128 + (12 + 1) * 256 + (6 + 1) * 512
_OUTPUTS_34 = 8_512
# ResNet-50. A bottleneck of c channels from i: i*c + 9*c*c + 4*c*c; the first
# of a stage has a shortcut of i * 4*c as well. 64*64 = 4,096 and so on:
#   stem       9 * 3*64                                        =     1,728
#   stage 64   (1 + 9 + 4 + 4 + 2 * (4 + 9 + 4)) * 4,096       =   212,992
#   stage 128  (2 + 9 + 4 + 8 + 3 * (4 + 9 + 4)) * 16,384      = 1,212,416
#   stage 256  (2 + 9 + 4 + 8 + 5 * (4 + 9 + 4)) * 65,536      = 7,077,888
#   stage 512  (2 + 9 + 4 + 8 + 2 * (4 + 9 + 4)) * 262,144     = 14,942,208
_KERNELS_50 = 1_728 + 212_992 + 1_212_416 + 7_077_888 + 14_942_208
# Outputs: 64 + 6 * (64 * 3 + 128 * 4 + 256 * 6 + 512 * 3) + 4 * (64 + 128 + 256
# + 512), those of the shortcuts
_OUTPUTS_50 = 26_560
_HEAD_50 = 2048 * 10 + 10
# ResNet-9: 9 * (3*64 + 64*128 + 2 * 128*128 + 128*256 + 256*512 + 2 * 512*512)
_KERNELS_9 = 9 * (192 + 8_192 + 32_768 + 32_768 + 131_072 + 524_288)
_OUTPUTS_9 = 64 + 3 * 128 + 256 + 3 * 512
_HEAD = 512 * 10 + 10


_ALL_NORMS = ('none', 'group', 'batch')


@pytest.mark.parts
@pytest.mark.parametrize(
  'build, kernels, outputs, head, norms',
  [
    (residual.resnet9, _KERNELS_9, _OUTPUTS_9, _HEAD, _ALL_NORMS),
    (residual.resnet18, _KERNELS_18, _OUTPUTS_18, _HEAD, _ALL_NORMS),
    # Their weights take seconds to draw.
    (residual.resnet34, _KERNELS_34, _OUTPUTS_34, _HEAD, ('batch',)),
    (residual.resnet50, _KERNELS_50, _OUTPUTS_50, _HEAD_50, ('batch',)),
  ],
)
def test_parameter_counts(build, kernels, outputs, head, norms):
  # A bias, or a scale and an offset; batch has two moving averages as well.
  per_output = {'none': 1, 'group': 2, 'batch': 4}
  for norm in norms:
    expected = kernels + per_output[norm] * outputs + head
    assert build(norm=norm).count_params() == expected


def test_published_parameter_counts():
  # Of the ResNets for CIFAR in PyTorch, and of the ResNet-9 with
  # normalisation (6,573,120 in that of the DAWNBench, whose head has no bias).
  assert _KERNELS_18 + 2 * _OUTPUTS_18 + _HEAD == 11_173_962
  assert _KERNELS_34 + 2 * _OUTPUTS_34 + _HEAD == 21_282_122
  assert _KERNELS_50 + 2 * _OUTPUTS_50 + _HEAD_50 == 23_520_842
  assert _KERNELS_9 + 2 * _OUTPUTS_9 + _HEAD == 6_573_130


@pytest.mark.parts
@pytest.mark.parametrize(
  'build, count',
  [(residual.resnet9, 6_573_130), (residual.resnet18, 11_173_962)],
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
    self._norms = _created(model, blocks.GroupNormalization)

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

  def bottleneck(self, x, stride, has_projection):
    branch = self.conv(self.relu(self.relu(x), stride))
    return np.maximum(
      branch + (self.conv(x, stride) if has_projection else x), 0
    )


def _draw(rng, shape):
  if len(shape) == 1:
    return rng.normal(0.5, 0.5, shape)
  return rng.normal(0, np.prod(shape[:-1]) ** -0.5, shape)


def _gains(model):
  """Variances of the kernels in units of 1 / fan-in, as they were created."""
  kernels = [layer.kernel for layer in _created(model, tf.keras.layers.Conv2D)]
  return [
    float(tf.math.reduce_variance(kernel)) * np.prod(kernel.shape[:-1])
    for kernel in kernels
  ]


def _created(model, layer_class):
  found = [layer for layer in model.layers if isinstance(layer, layer_class)]
  number = lambda layer: int((re.findall(r'_(\d+)$', layer.name) or [0])[0])
  return iter(sorted(found, key=number))


def _pool(x):
  batch, height, width, channels = x.shape
  return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))


@pytest.mark.dear
@pytest.mark.parametrize('norm', ['none', 'group'])
def test_resnet9_equals_numpy(norm):
  model = residual.resnet9((16, 24, 1), 5, norm)
  numpy = _Reference(model)
  images = np.random.default_rng(1).normal(size=(2, 16, 24, 1))
  x = numpy.residual(_pool(numpy.relu(numpy.relu(images))))
  x = numpy.residual(_pool(numpy.relu(_pool(numpy.relu(x)))))
  kernel, bias = model.layers[-1].get_weights()
  expected = x.max((1, 2)) @ kernel + bias
  np.testing.assert_allclose(model(images), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parts
@pytest.mark.parametrize('norm', ['none', 'group'])
@pytest.mark.parametrize(
  'build, kind, shape, depths',
  [
    # Odd sizes too: 18 and 12 are strided to 9, 5, 3 and 6, 3, 2.
    (residual.resnet18, 'basic_block', (18, 12, 3), (2, 2, 2, 2)),
    (residual.resnet34, 'basic_block', (9, 8, 1), (3, 4, 6, 3)),
    (residual.resnet50, 'bottleneck', (9, 8, 1), (3, 4, 6, 3)),
  ],
)
def test_the_deeper_ones_equal_numpy(build, kind, shape, depths, norm):
  model = build(shape, 5, norm)
  numpy = _Reference(model)
  images = np.random.default_rng(1).normal(size=(2, *shape))
  x = numpy.relu(images)
  for stage, depth in enumerate(depths):
    for number in range(depth):
      stride = 2 if stage and not number else 1
      # A bottleneck ends with 256 channels already in the first stage.
      projects = not number and (stage > 0 or kind == 'bottleneck')
      x = getattr(numpy, kind)(x, stride, projects)
  size = (3, 2) if build is residual.resnet18 else (2, 1)
  assert x.shape[1:] == (*size, 512 if kind == 'basic_block' else 2048)
  kernel, bias = model.layers[-1].get_weights()
  expected = x.mean((1, 2)) @ kernel + bias
  scale = np.abs(expected).max()
  np.testing.assert_allclose(model(images) / scale, expected / scale, atol=1e-4)


def test_resnet18_without_normalisation_starts_by_the_rules_of_fixup():
  # Of a block the first convolution, the last, and that of the shortcut: with
  # 8 blocks Fixup's rule is 2 / 8, 0 and He's 2.
  plain, projected = [0.25, 0.0], [0.25, 0.0, 2.0]
  stage = [*projected, *plain]
  expected = [2.0, *plain, *plain, *stage, *stage, *stage]
  assert _gains(residual.resnet18()) == pytest.approx(expected, rel=0.1)


@pytest.mark.parts
def test_resnet50_without_normalisation_starts_by_the_rules_of_fixup():
  # The first bottleneck, its shortcut, and the second one: with 16 blocks of
  # three convolutions, 2 / sqrt(16) of their variances, and 0.
  expected = [0.5, 0.5, 0, 2.0, 0.5, 0.5, 0]
  gains = _gains(residual.resnet50((8, 8, 3)))[1:8]
  assert gains == pytest.approx(expected, rel=0.1)


# Over 9: 3*16 + 16*32 + 7 * 32*32 + 32*64 + 7 * 64*64 + 64*128 + 7 * 128*128,
# and of the 1x1 shortcuts 16*32 + 32*64 + 64*128.
_WIDE_KERNELS = (
  9 * (48 + 512 + 7_168 + 2_048 + 28_672 + 8_192 + 114_688) + 10_752
)
# Channels that are normalised: those before each convolution of a branch, and
# at the end.
_WIDE_NORMALISED = 16 + 7 * 32 + 32 + 7 * 64 + 64 + 7 * 128 + 128
# Outputs of all convolutions.
_WIDE_OUTPUTS = 16 + 9 * (32 + 64 + 128)
_WIDE_HEAD = 128 * 10 + 10


@pytest.mark.parts
def test_size_of_the_wide_one():
  assert _WIDE_KERNELS + 2 * _WIDE_NORMALISED + _WIDE_HEAD == 1_467_610
  for norm, more in (
    ('none', _WIDE_OUTPUTS),
    ('group', 2 * _WIDE_NORMALISED),
    ('batch', 4 * _WIDE_NORMALISED),
  ):
    model = residual.wide_resnet28_2(norm=norm)
    assert model.count_params() == _WIDE_KERNELS + more + _WIDE_HEAD


def _convolve(x, layer):
  kernel, bias = layer.get_weights()
  margin = kernel.shape[0] // 2
  x = np.pad(x, [(0, 0), (margin, margin), (margin, margin), (0, 0)])
  # Kernels are correlated with images, not convolved.
  out = signal.fftconvolve(
    x[..., np.newaxis], kernel[np.newaxis, ::-1, ::-1], 'valid', axes=(1, 2)
  ).sum(axis=3)
  return out[:, :: layer.strides[0], :: layer.strides[1]] + bias


@pytest.mark.parts
def test_forward_pass_of_the_wide_one():
  model = residual.wide_resnet28_2((12, 8, 3), 4)
  rng = np.random.default_rng(0)
  for layer in model.layers:
    layer.set_weights(
      [
        rng.normal(0, (2 / max(1, w[..., 0].size)) ** 0.5, w.shape)
        for w in layer.get_weights()
      ]
    )
  found = list(_created(model, tf.keras.layers.Conv2D))
  assert len(found) == 28
  convolutions = iter(found)

  def activate(x):
    return np.where(x > 0, x, 0.1 * x)

  images = rng.normal(size=(2, 12, 8, 3))
  x = _convolve(images, next(convolutions))
  for number in range(12):
    branch = activate(x)
    if number == 0:
      x = branch
    if number % 4 == 0:
      x = _convolve(x, next(convolutions))
    branch = _convolve(branch, next(convolutions))
    x = x + _convolve(activate(branch), next(convolutions))
  kernel, bias = model.layers[-1].get_weights()
  expected = activate(x).mean(axis=(1, 2)) @ kernel + bias
  np.testing.assert_allclose(model(images), expected, rtol=1e-4, atol=1e-4)
