"""Residual networks for images of about 32 by 32 (He et al. 2016)."""

from collections.abc import Sequence

import tensorflow as tf

from tff_ssl.models import arguments, blocks

layers = tf.keras.layers

# Of ResNet-18: channels and stride of the stages, and blocks in each.
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
_BLOCKS = 2


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

  Args:
    input_shape: Height, width and channels; at least 8 by 8.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`; 'none' is FedMatch's.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_image_network(input_shape, num_classes, norm, smallest=8)

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


def resnet18(
  input_shape: Sequence[int] = (32, 32, 3),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds the ResNet-18 for CIFAR, of the grouping paper's CIFAR and SVHN.

  He et al. 2016, "Deep Residual Learning for Image Recognition", with the stem
  that became usual for small images: one 3x3 convolution of stride 1 and no
  pooling. Four stages of two basic blocks, 64, 128, 256 and 512 channels, a 1x1
  convolution on the shortcut where the shape changes, global average pooling:
  11,173,962 trainable weights at 32x32x3 with 10 classes and a normalisation.

  Without normalisation, the variance of activations would double from block to
  block. There the last convolution of every block starts at 0, and the first at
  1 / sqrt(8 blocks) of the usual deviation: Zhang et al. 2019, "Fixup
  Initialization". Of their scalars, the biases of the convolutions take the
  place of the offsets, and the multipliers are left out.

  Args:
    input_shape: Height, width and channels; at least 8 by 8.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`; the grouping paper compares 'batch'
      and 'group'.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_image_network(input_shape, num_classes, norm, smallest=8)
  images = layers.Input(tuple(input_shape))
  x = layers.ReLU()(blocks.conv_norm(images, _STAGES[0][0], norm))
  for channels, stride in _STAGES:
    x = _basic_block(x, channels, stride, norm)
    for _ in range(_BLOCKS - 1):
      x = _basic_block(x, channels, 1, norm)
  logits = blocks.classifier(layers.GlobalAveragePooling2D()(x), num_classes)
  return tf.keras.Model(images, logits, name='resnet18')


def _basic_block(x, channels, stride, norm):
  first_gain, last_gain = 2.0, 2.0
  if norm == 'none':
    first_gain, last_gain = 2 / (_BLOCKS * len(_STAGES)), 0
  branch = blocks.conv_norm(x, channels, norm, stride=stride, gain=first_gain)
  branch = layers.ReLU()(branch)
  branch = blocks.conv_norm(branch, channels, norm, gain=last_gain)
  if stride > 1 or x.shape[-1] != channels:
    x = blocks.conv_norm(x, channels, norm, size=1, stride=stride)
  return layers.ReLU()(layers.Add()([x, branch]))
