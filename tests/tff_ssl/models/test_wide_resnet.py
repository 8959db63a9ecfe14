"""The Wide ResNet against its published size, and against SciPy."""

import re

import numpy as np
import pytest
import tensorflow as tf
from scipy import signal

from tff_ssl.models import wide_resnet

# Over 9: 3*16 + 16*32 + 7 * 32*32 + 32*64 + 7 * 64*64 + 64*128 + 7 * 128*128,
# and of the 1x1 shortcuts 16*32 + 32*64 + 64*128.
_KERNELS = 9 * (48 + 512 + 7_168 + 2_048 + 28_672 + 8_192 + 114_688) + 10_752
# Channels that are normalised: those before each convolution of a branch, and
# at the end.
_NORMALISED = 16 + 7 * 32 + 32 + 7 * 64 + 64 + 7 * 128 + 128
# Outputs of all convolutions.
_OUTPUTS = 16 + 9 * (32 + 64 + 128)
_HEAD = 128 * 10 + 10


@pytest.mark.parts
def test_size():
  assert _KERNELS + 2 * _NORMALISED + _HEAD == 1_467_610
  for norm, more in (
    ('none', _OUTPUTS),
    ('group', 2 * _NORMALISED),
    ('batch', 4 * _NORMALISED),
  ):
    model = wide_resnet.wide_resnet28_2(norm=norm)
    assert model.count_params() == _KERNELS + more + _HEAD


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
def test_forward_pass():
  model = wide_resnet.wide_resnet28_2((12, 8, 3), 4)
  rng = np.random.default_rng(0)
  for layer in model.layers:
    layer.set_weights(
      [
        rng.normal(0, (2 / max(1, w[..., 0].size)) ** 0.5, w.shape)
        for w in layer.get_weights()
      ]
    )
  found = sorted(
    (x for x in model.layers if isinstance(x, tf.keras.layers.Conv2D)),
    key=lambda x: int((re.findall(r'_(\d+)$', x.name) or [0])[0]),
  )
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
