"""Residual networks for images of about 32 by 32 (He et al. 2016)."""

from collections.abc import Sequence

import tensorflow as tf

from tff_ssl.models import arguments, blocks

layers = tf.keras.layers

# Channels and stride of the stages.
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
# The last convolution of a bottleneck has so many times the channels.
_EXPANSION = 4


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
  return _resnet(
    'resnet18', _basic, (2, 2, 2, 2), input_shape, num_classes, norm
  )


def resnet34(
  input_shape: Sequence[int] = (32, 32, 3),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds the ResNet-34 of He et al. 2016 (Table 1) for CIFAR.

  As `resnet18`, with 3, 4, 6 and 3 basic blocks: 21,282,122 trainable weights
  at 32x32x3 with 10 classes and a normalisation.

  Args:
    input_shape: Height, width and channels; at least 8 by 8.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  return _resnet(
    'resnet34', _basic, (3, 4, 6, 3), input_shape, num_classes, norm
  )


def resnet50(
  input_shape: Sequence[int] = (32, 32, 3),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds the ResNet-50 of He et al. 2016 (Table 1) for CIFAR.

  As `resnet34`, of bottlenecks: a 1x1 convolution, a 3x3 one, and a 1x1 one to
  four times the channels, 23,520,842 trainable weights at 32x32x3 with 10
  classes and a normalisation. The stride is that of the 3x3 convolution, as in
  PyTorch's networks; the paper has it in the first one.

  Args:
    input_shape: Height, width and channels; at least 8 by 8.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`. Without normalisation, Fixup's rule
      for three convolutions holds: the first two at 16 blocks ** -1/4 of the
      usual deviation.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  return _resnet(
    'resnet50', _bottleneck, (3, 4, 6, 3), input_shape, num_classes, norm
  )


def resnet18_encoder(
  input_shape: Sequence[int] = (32, 32, 3), norm: str = 'none'
) -> tf.keras.Model:
  """Builds `resnet18` without its last layer, as an encoder.

  Args:
    input_shape: Height, width and channels; at least 8 by 8.
    norm: 'none', 'batch' or 'group'.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to float32
    [batch, 512].

  Raises:
    ValueError: If an argument is out of range.
  """
  return _encoder('resnet18_encoder', _basic, (2, 2, 2, 2), input_shape, norm)


def resnet34_encoder(
  input_shape: Sequence[int] = (32, 32, 3), norm: str = 'none'
) -> tf.keras.Model:
  """As `resnet18_encoder`, from `resnet34`."""
  return _encoder('resnet34_encoder', _basic, (3, 4, 6, 3), input_shape, norm)


def resnet50_encoder(
  input_shape: Sequence[int] = (32, 32, 3), norm: str = 'none'
) -> tf.keras.Model:
  """As `resnet18_encoder`, from `resnet50`, to float32 [batch, 2048]."""
  return _encoder(
    'resnet50_encoder', _bottleneck, (3, 4, 6, 3), input_shape, norm
  )


def _basic(channels, stride):
  """Returns channels, kernel size and stride of a block's convolutions."""
  return (channels, 3, stride), (channels, 3, 1)


def _bottleneck(channels, stride):
  """As `_basic`."""
  return (
    (channels, 1, 1),
    (channels, 3, stride),
    (_EXPANSION * channels, 1, 1),
  )


def _resnet(name, convolutions_of, depths, input_shape, num_classes, norm):
  arguments.check_image_network(input_shape, num_classes, norm, smallest=8)
  images, features = _trunk(convolutions_of, depths, input_shape, norm)
  logits = blocks.classifier(features, num_classes)
  return tf.keras.Model(images, logits, name=name)


def _encoder(name, convolutions_of, depths, input_shape, norm):
  arguments.check_image_network(input_shape, 1, norm, smallest=8)
  images, features = _trunk(convolutions_of, depths, input_shape, norm)
  return tf.keras.Model(images, features, name=name)


def _trunk(convolutions_of, depths, input_shape, norm):
  """Returns the input, and the features below the last layer."""
  images = layers.Input(tuple(input_shape))
  x = layers.ReLU()(blocks.conv_norm(images, _STAGES[0][0], norm))
  for (channels, stride), depth in zip(_STAGES, depths, strict=True):
    for number in range(depth):
      convolutions = convolutions_of(channels, stride if number == 0 else 1)
      x = _block(x, convolutions, norm, num_blocks=sum(depths))
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
