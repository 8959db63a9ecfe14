"""Plain deep convolutional networks (Simonyan & Zisserman 2015)."""

from collections.abc import Sequence

import tensorflow as tf

from tff_ssl.models import arguments, blocks

layers = tf.keras.layers

# Configuration A: channels of the convolutions between two poolings.
_STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


def vgg11(
  input_shape: Sequence[int] = (32, 32, 3),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds VGG11, as it is used for CIFAR.

  The eight convolutions of configuration A of Simonyan & Zisserman 2015, "Very
  Deep Convolutional Networks for Large-Scale Image Recognition", each followed
  by a ReLU. At 32x32 a single position of 512 channels is left after five
  poolings, and one linear layer takes the place of the three of ImageNet:
  9,225,610 weights at 32x32x3 with 10 classes and no normalisation.

  Poolings round odd sizes up: 28x28 images, too, end in one position. Of larger
  images the average over the positions is taken.

  Args:
    input_shape: Height, width and channels; at least 8 by 8.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`; 'none' is the published network.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_image_network(input_shape, num_classes, norm, smallest=8)
  images = x = layers.Input(tuple(input_shape))
  for stage in _STAGES:
    for channels in stage:
      x = layers.ReLU()(blocks.conv_norm(x, channels, norm))
    # Rounding down would leave nothing of 28x28 at the fifth pooling.
    x = layers.MaxPool2D(padding='same')(x)
  logits = blocks.classifier(layers.GlobalAveragePooling2D()(x), num_classes)
  return tf.keras.Model(images, logits, name='vgg11')
