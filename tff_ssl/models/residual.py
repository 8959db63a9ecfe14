"""Residual networks for images of about 32 by 32, of at least 8 by 8.

He et al. 2016, "Deep Residual Learning for Image Recognition", and Zagoruyko
and Komodakis 2016 (arXiv 1605.07146). They take what
`tff_ssl.models.ModelSpec.build` says, and raise `ValueError` for what is out of
range.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf

from tff_ssl.models import blocks

layers = tf.keras.layers

# Channels and stride of the stages.
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
_WIDE_STAGES = ((32, 1), (64, 2), (128, 2))
_BLOCKS_OF_WIDE_STAGE = 4


def resnet9(
  input_shape: Sequence[int] = (32, 32, 3),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds the ResNet-9 of FedMatch, with which the grouping paper compares.

  Jeong et al. 2021, "Federated Semi-Supervised Learning with Inter-Client
  Consistency & Disjoint Learning" (Table 3 of the grouping paper), take the
  network that became known through the DAWNBench competition: convolutions of
  64, 128, 256 and 512 channels, a residual block of two more after that of 128
  and that of 512, each but the first pooled, then the maximum over all
  positions. A ReLU follows every convolution, none the sums, so that no
  convolution of a block may start at 0. Their variance is FedMatch's, 1 /
  fan-in. Its code has neither normalisation nor biases; here biases stand where
  no normalisation does, and in the last layer.
  """
  blocks.check_image_network(input_shape, num_classes, norm, smallest=8)

  def conv(x, channels):
    return layers.ReLU()(blocks.conv_norm(x, channels, norm, gain=1))

  def pooled(x, channels):
    return layers.MaxPool2D()(conv(x, channels))

  def residual(x, channels):
    return layers.Add()([x, conv(conv(x, channels), channels)])

  images = layers.Input(tuple(input_shape))
  x = residual(pooled(conv(images, 64), 128), 128)
  x = residual(pooled(pooled(x, 256), 512), 512)
  logits = blocks.classifier(layers.GlobalMaxPool2D()(x), num_classes)
  return tf.keras.Model(images, logits, name='resnet9')


def resnet(
  depth: int,
  input_shape: Sequence[int] = (32, 32, 3),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds a ResNet for CIFAR; with 18, of the grouping paper's CIFAR and SVHN.

  He et al. 2016, "Deep Residual Learning for Image Recognition" (Table 1), with
  the stem that became usual for small images: one 3x3 convolution of stride 1
  and no pooling. Four stages of 64, 128, 256 and 512 channels, a 1x1
  convolution on the shortcut where the shape changes, global average pooling.
  18: two basic blocks a stage, 11,173,962 trainable weights at 32x32x3 with 10
  classes and a normalisation. 34: 3, 4, 6 and 3 of them, 21,282,122 weights.
  50: as many bottlenecks, a 1x1 convolution, a 3x3 one, and a 1x1 one to four
  times the channels, 23,520,842 weights; the stride is that of the 3x3
  convolution, as in PyTorch's networks, while the paper has it in the first.

  Without normalisation, the variance of activations would double from block to
  block. There the last convolution of every block starts at 0, and the others
  at a part of the usual deviation, 1 / sqrt(blocks), of bottlenecks blocks **
  -1/4: Zhang et al. 2019, "Fixup Initialization". Of their scalars, the biases
  of the convolutions take the place of the offsets, and the multipliers are
  left out.
  """
  blocks.check_image_network(input_shape, num_classes, norm, smallest=8)
  images, features = _resnet_features(depth, input_shape, norm)
  logits = blocks.classifier(features, num_classes)
  return tf.keras.Model(images, logits, name=f'resnet{depth}')


def resnet_encoder(
  depth: int, input_shape: Sequence[int] = (32, 32, 3), norm: str = 'none'
) -> tf.keras.Model:
  """Builds `resnet` without its last layer: to 512 features, of 50 to 2048."""
  blocks.check_image_network(input_shape, 1, norm, smallest=8)
  images, features = _resnet_features(depth, input_shape, norm)
  return tf.keras.Model(images, features, name=f'resnet{depth}_encoder')


resnet18, resnet34, resnet50 = (
  functools.partial(resnet, depth) for depth in (18, 34, 50)
)
resnet18_encoder, resnet34_encoder, resnet50_encoder = (
  functools.partial(resnet_encoder, depth) for depth in (18, 34, 50)
)


def _basic(channels, stride):
  """Returns channels, kernel size and stride of a block's convolutions."""
  return (channels, 3, stride), (channels, 3, 1)


def _bottleneck(channels, stride):
  return (channels, 1, 1), (channels, 3, stride), (4 * channels, 1, 1)


# The convolutions of a block, and the blocks of each stage.
_DEPTHS = {
  18: (_basic, (2, 2, 2, 2)),
  34: (_basic, (3, 4, 6, 3)),
  50: (_bottleneck, (3, 4, 6, 3)),
}


def _resnet_features(depth, input_shape, norm):
  """Returns the input of a network, and the features of its last layer."""
  convolutions_of, lengths = _DEPTHS[depth]
  images = layers.Input(tuple(input_shape))
  x = layers.ReLU()(blocks.conv_norm(images, _STAGES[0][0], norm))
  for (channels, stride), length in zip(_STAGES, lengths, strict=True):
    for number in range(length):
      convolutions = convolutions_of(channels, 1 if number else stride)
      x = _block(x, convolutions, norm, num_blocks=sum(lengths))
  return images, layers.GlobalAveragePooling2D()(x)


def _block(x, convolutions, norm, num_blocks):
  """Adds a branch of convolutions, with ReLU between, to its input."""
  gains = [2.0] * len(convolutions)
  if norm == 'none':
    others = len(convolutions) - 1
    gains = [2.0 * num_blocks ** (-1 / others)] * others + [0]
  branch, total_stride = x, 1
  for number, (channels, size, stride) in enumerate(convolutions):
    if number:
      branch = layers.ReLU()(branch)
    branch = blocks.conv_norm(
      branch, channels, norm, size=size, stride=stride, gain=gains[number]
    )
    total_stride *= stride
  if total_stride > 1 or x.shape[-1] != channels:
    x = blocks.conv_norm(x, channels, norm, size=1, stride=total_stride)
  return layers.ReLU()(layers.Add()([x, branch]))


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
  shortcut, too, as in FixMatch's code. Without normalisation, the last
  convolution of each block starts at 0, as of `resnet18`.
  """
  blocks.check_image_network(input_shape, num_classes, norm, smallest=8)
  images = layers.Input(tuple(input_shape))
  x = _wide_conv(images, 16, norm)
  for stage, (channels, stride) in enumerate(_WIDE_STAGES):
    for number in range(_BLOCKS_OF_WIDE_STAGE):
      is_first = stage == number == 0
      x = _wide_block(x, channels, 1 if number else stride, norm, is_first)
  features = layers.GlobalAveragePooling2D()(_activate(x, norm))
  logits = blocks.classifier(features, num_classes)
  return tf.keras.Model(images, logits, name='wide_resnet28_2')


def _wide_block(x, channels, stride, norm, is_first):
  gain = 2.0
  if norm == 'none':
    # Of blocks that start at 0 (Zhang et al. 2019), the other convolution.
    gain /= len(_WIDE_STAGES) * _BLOCKS_OF_WIDE_STAGE
  branch = _activate(x, norm)
  if is_first:
    x = branch
  if stride > 1 or x.shape[-1] != channels:
    x = _wide_conv(x, channels, norm, size=1, stride=stride)
  branch = _wide_conv(branch, channels, norm, stride=stride, gain=gain)
  branch = _wide_conv(
    _activate(branch, norm),
    channels,
    norm,
    gain=0 if norm == 'none' else 2.0,
  )
  return layers.Add()([x, branch])


def _wide_conv(x, channels, norm, **more):
  return blocks.convolution(x, channels, use_bias=norm == 'none', **more)


def _activate(x, norm):
  return layers.LeakyReLU(0.1)(blocks.make_norm(norm)(x))
