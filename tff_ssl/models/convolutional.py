"""Convolutional networks for small images."""

from collections.abc import Sequence

import tensorflow as tf

from tff_ssl.models import arguments, blocks, normalization

layers = tf.keras.layers


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

  Args:
    input_shape: Height, width and channels; at least 6 by 6.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_image_network(input_shape, num_classes, norm, smallest=6)
  return tf.keras.Sequential(
    [
      layers.Input(tuple(input_shape)),
      layers.Conv2D(32, 3),
      normalization.make_norm(norm),
      layers.ReLU(),
      layers.Conv2D(64, 3),
      normalization.make_norm(norm),
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
) -> tf.keras.Model:
  """Builds the MNIST network of FedUL.

  Lu et al., Federated Learning from Only Unlabeled Data with
  Class-Conditional-Sharing Clients (arXiv 2204.03304), Table D.2: three
  same-padded 5x5 convolutions of 64, 64 and 128 channels, the first two
  max-pooled, and hidden layers of 2048 and 512, each normalised ahead of its
  ReLU. `norm='batch'` is the published network.

  The table has three input channels, for MNIST too. This one takes images as
  they are, of one channel: on three equal ones, kernels act as their sum.

  Args:
    input_shape: Height, width and channels; at least 4 by 4.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  return _fedul_mnist(input_shape, num_classes, norm, 'fedul_mnist', dropout=0)


def fedul_mnist_dropout(
  input_shape: Sequence[int] = (28, 28, 1),
  num_classes: int = 10,
  norm: str = 'batch',
) -> tf.keras.Model:
  """Builds the network that FedUL's authors trained by FedLLP on MNIST.

  `fedul_mnist` with a dropout at rate 0.2 at the end of each convolutional
  block and each hidden layer: their code has it, their text does not.

  Args:
    input_shape: Height, width and channels; at least 4 by 4.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  name = 'fedul_mnist_dropout'
  return _fedul_mnist(input_shape, num_classes, norm, name, dropout=0.2)


def small_cnn(
  input_shape: Sequence[int] = (8, 8, 1),
  num_classes: int = 10,
  norm: str = 'none',
) -> tf.keras.Model:
  """Builds a small and fast network for tests, tutorials and quick looks.

  Two same-padded 3x3 convolutions of 16 and 32 channels, each max-pooled, and
  one hidden layer of 64.

  Args:
    input_shape: Height, width and channels; at least 4 by 4.
    num_classes: See `tff_ssl.models.ModelSpec`.
    norm: See `tff_ssl.models.ModelSpec`.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_image_network(input_shape, num_classes, norm, smallest=4)
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


def cnn_encoder(
  input_shape: Sequence[int] = (28, 28, 1), norm: str = 'none'
) -> tf.keras.Model:
  """Builds the convolutions of `small_cnn` as an encoder.

  Args:
    input_shape: Height, width and channels; at least 4 by 4.
    norm: 'none', 'batch' or 'group', ahead of each ReLU.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to float32
    [batch, (height // 4) * (width // 4) * 32].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_image_network(input_shape, 1, norm, smallest=4)
  return tf.keras.Sequential(
    [
      layers.Input(tuple(input_shape)),
      *_small_convolutions(norm),
      layers.Flatten(),
    ],
    name='cnn_encoder',
  )


def _fedul_mnist(input_shape, num_classes, norm, name, dropout):
  arguments.check_image_network(input_shape, num_classes, norm, smallest=4)

  def block(layer, *pooling):
    drop = [layers.Dropout(dropout)] if dropout else []
    norm_layer = normalization.make_norm(norm)
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
    name=name,
  )


def _small_convolutions(norm):
  return [
    layer
    for channels in (16, 32)
    for layer in (
      layers.Conv2D(channels, 3, padding='same'),
      normalization.make_norm(norm),
      layers.ReLU(),
      layers.MaxPool2D(),
    )
  ]
