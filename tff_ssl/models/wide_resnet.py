"""Wide residual networks (Zagoruyko and Komodakis 2016, arXiv 1605.07146)."""

from collections.abc import Sequence

import tensorflow as tf

from tff_ssl.models import arguments, blocks, normalization

layers = tf.keras.layers

_STEM = 16
# Channels at width 1, and stride, of the stages.
_STAGES = ((16, 1), (32, 2), (64, 2))
_WIDTH = 2
_BLOCKS = 4
# Slope of ReLU below 0, in FixMatch and its predecessors.
_LEAK = 0.1


def wide_resnet28_2(
  input_shape: Sequence[int] = (32, 32, 3),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds the Wide ResNet 28-2 of FixMatch.

  Oliver et al. (arXiv 1804.09170) took it for semi-supervised learning, and
  Sohn et al. for FixMatch on CIFAR-10 and SVHN (arXiv 2001.07685, Section 4.1):
  a convolution of 16 channels, three stages of four blocks with 32, 64 and 128
  channels, in which normalisation and activation stand before the convolution,
  leaky ReLU with slope 0.1, global average pooling. With batch normalisation it
  has 1,467,610 trainable weights at 32x32x3 with 10 classes.

  In the first block, its first normalisation and activation stand before the
  shortcut, too, as in FixMatch's code.

  Args:
    input_shape: Height, width and channels; at least 8 by 8.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`; 'batch' is FixMatch's. Without one,
      the last convolution of each block starts at 0, as of `resnet18`.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_image_network(input_shape, num_classes, norm, smallest=8)
  images = layers.Input(tuple(input_shape))
  x = _conv(images, _STEM, norm)
  for stage, (channels, stride) in enumerate(_STAGES):
    for number in range(_BLOCKS):
      x = _block(
        x,
        _WIDTH * channels,
        stride if number == 0 else 1,
        norm,
        is_first=stage == number == 0,
      )
  features = layers.GlobalAveragePooling2D()(_activate(x, norm))
  logits = blocks.classifier(features, num_classes)
  return tf.keras.Model(images, logits, name='wide_resnet28_2')


def _block(x, channels, stride, norm, is_first):
  gain = 2.0
  if norm == 'none':
    # Of blocks that start at 0 (Zhang et al. 2019), the other convolution.
    gain /= len(_STAGES) * _BLOCKS
  branch = _activate(x, norm)
  if is_first:
    x = branch
  if stride > 1 or x.shape[-1] != channels:
    x = _conv(x, channels, norm, size=1, stride=stride)
  branch = _conv(branch, channels, norm, stride=stride, gain=gain)
  branch = _conv(
    _activate(branch, norm),
    channels,
    norm,
    gain=0 if norm == 'none' else 2.0,
  )
  return layers.Add()([x, branch])


def _conv(x, channels, norm, **more):
  return blocks.convolution(x, channels, use_bias=norm == 'none', **more)


def _activate(x, norm):
  return layers.LeakyReLU(_LEAK)(normalization.make_norm(norm)(x))
