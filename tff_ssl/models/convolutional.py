"""Convolutional networks for small images, of 4 by 4 to 8 by 8 at least.

They take what `tff_ssl.models.ModelSpec.build` says, and raise `ValueError` for
what is out of range.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf

from tff_ssl.models import blocks

layers = tf.keras.layers

# VGG11 has configuration A: channels of the convolutions between two poolings.
_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))


def emnist_cnn(
  input_shape: Sequence[int] = (28, 28, 1),
  num_classes: int = 47,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds the EMNIST network of the grouping paper.

  Zhang et al., "Improving Semi-supervised Federated Learning by Reducing the
  Gradient Diversity of Models". Two valid 3x3 convolutions, max pooling, a
  dropout of whole channels at rate 0.25, one hidden layer of 128.

  The paper reports group normalisation on EMNIST too, but the network behind
  its figures has none (its layers are made and never called). Both can be had
  by name: `norm='none'`, the default, is the published network; `norm='group'`
  is the one that the paper describes, and really normalises.
  """
  blocks.check_image_network(input_shape, num_classes, norm, smallest=6)
  return tf.keras.Sequential(
    [
      layers.Input(tuple(input_shape)),
      layers.Conv2D(32, 3),
      blocks.make_norm(norm),
      layers.ReLU(),
      layers.Conv2D(64, 3),
      blocks.make_norm(norm),
      layers.MaxPool2D(),
      layers.SpatialDropout2D(0.25),
      layers.ReLU(),
      layers.Flatten(),
      layers.Dense(128, activation='relu'),
      blocks.output_layer(num_classes),
    ],
    name='emnist_cnn',
  )


def fedul_mnist(
  input_shape: Sequence[int] = (28, 28, 1),
  num_classes: int = 10,
  norm: str = 'batch',
  dropout: float = 0.0,
) -> tf.keras.Model:
  """Builds the MNIST network of FedUL.

  Lu et al., Federated Learning from Only Unlabeled Data with
  Class-Conditional-Sharing Clients (arXiv 2204.03304), Table D.2: three
  same-padded 5x5 convolutions of 64, 64 and 128 channels, the first two
  max-pooled, and hidden layers of 2048 and 512, each normalised ahead of its
  ReLU. `norm='batch'` is the published network. A `dropout` is the rate at the
  end of each convolutional block and each hidden layer: the authors' code of
  FedLLP has 0.2, their text has none.

  The table has three input channels, for MNIST too. This one takes images as
  they are, of one channel: on three equal ones, kernels act as their sum.
  """
  blocks.check_image_network(input_shape, num_classes, norm, smallest=4)

  def block(layer, *pooling):
    drop = [layers.Dropout(dropout)] if dropout else []
    norm_layer = blocks.make_norm(norm)
    return [layer, norm_layer, layers.ReLU(), *pooling, *drop]

  def convolution(channels):
    return layers.Conv2D(channels, 5, padding='same')

  return tf.keras.Sequential(
    [
      layers.Input(tuple(input_shape)),
      *block(convolution(64), layers.MaxPool2D()),
      *block(convolution(64), layers.MaxPool2D()),
      *block(convolution(128)),
      layers.Flatten(),
      *block(layers.Dense(2048)),
      *block(layers.Dense(512)),
      blocks.output_layer(num_classes),
    ],
    name='fedul_mnist',
  )


fedul_mnist_dropout = functools.partial(fedul_mnist, dropout=0.2)


def small_cnn(
  input_shape: Sequence[int] = (8, 8, 1),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds a small and fast network for tests, tutorials and quick looks.

  Two same-padded 3x3 convolutions of 16 and 32 channels, each max-pooled, and
  one hidden layer of 64.
  """
  blocks.check_image_network(input_shape, num_classes, norm, smallest=4)
  return tf.keras.Sequential(
    [
      layers.Input(tuple(input_shape)),
      *_small_convolutions(norm),
      layers.Flatten(),
      layers.Dense(64, activation='relu'),
      blocks.output_layer(num_classes),
    ],
    name='small_cnn',
  )


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
  """
  blocks.check_image_network(input_shape, num_classes, norm, smallest=8)
  images = x = layers.Input(tuple(input_shape))
  for stage in _VGG11:
    for channels in stage:
      x = layers.ReLU()(blocks.conv_norm(x, channels, norm))
    # Rounding down would leave nothing of 28x28 at the fifth pooling.
    x = layers.MaxPool2D(padding='same')(x)
  logits = blocks.classifier(layers.GlobalAveragePooling2D()(x), num_classes)
  return tf.keras.Model(images, logits, name='vgg11')


def cnn_encoder(
  input_shape: Sequence[int] = (28, 28, 1), norm: str = 'none'
) -> tf.keras.Model:
  """Builds the convolutions of `small_cnn` as an encoder.

  It has (height // 4) * (width // 4) * 32 features.
  """
  blocks.check_image_network(input_shape, 1, norm, smallest=4)
  return tf.keras.Sequential(
    [
      layers.Input(tuple(input_shape)),
      *_small_convolutions(norm),
      layers.Flatten(),
    ],
    name='cnn_encoder',
  )


def _small_convolutions(norm):
  return [
    layer
    for channels in (16, 32)
    for layer in (
      layers.Conv2D(channels, 3, padding='same'),
      blocks.make_norm(norm),
      layers.ReLU(),
      layers.MaxPool2D(),
    )
  ]
