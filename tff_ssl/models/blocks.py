"""What networks are made of: the convolution of deeper ones, the last layer."""

import tensorflow as tf

from tff_ssl.models import normalization

layers = tf.keras.layers


def conv_norm(
  x: tf.Tensor,
  channels: int,
  norm: str,
  *,
  size: int = 3,
  stride: int = 1,
  gain: float = 2.0,
) -> tf.Tensor:
  """Applies a convolution and its normalisation.

  The convolution has a bias only where no normalisation follows, whose offset
  would do the same.

  Args:
    x: Keras tensor [batch, height, width, channels].
    channels: Number of output channels.
    norm: 'none', 'batch' or 'group'.
    size: As of `convolution`.
    stride: Likewise.
    gain: Likewise.

  Returns:
    Keras tensor [batch, ceil(height / stride), ceil(width / stride), channels].
  """
  x = convolution(
    x, channels, norm == 'none', size=size, stride=stride, gain=gain
  )
  return normalization.make_norm(norm)(x)


def convolution(
  x: tf.Tensor,
  channels: int,
  use_bias: bool,
  *,
  size: int = 3,
  stride: int = 1,
  gain: float = 2.0,
) -> tf.Tensor:
  """Applies a convolution, as PyTorch pads.

  Weights are drawn as for ReLU (He et al. 2015): normal, truncated at two
  standard deviations, with variance gain / fan-in.

  Args:
    x: Keras tensor [batch, height, width, channels].
    channels: Number of output channels.
    use_bias: Whether a bias is added.
    size: Height and width of the kernel, odd.
    stride: Step of the kernel.
    gain: The variance of the weights times their fan-in; 0 for weights that
      start at 0.

  Returns:
    Keras tensor [batch, ceil(height / stride), ceil(width / stride), channels].
  """
  if size > 1 and stride > 1:
    # PyTorch pads all sides alike. 'same' pads an even size, where a stride
    # leaves one row over, at the bottom and right only: then every window lies
    # one pixel further down, and published weights would compute other values.
    x = layers.ZeroPadding2D(size // 2)(x)
    padding = 'valid'
  else:
    padding = 'same'
  return layers.Conv2D(
    channels,
    size,
    stride,
    padding,
    use_bias=use_bias,
    kernel_initializer=(
      tf.keras.initializers.VarianceScaling(gain) if gain else 'zeros'
    ),
  )(x)


def classifier(x: tf.Tensor, num_classes: int) -> tf.Tensor:
  """Applies the last layer, whose weights start at a deviation of 0.01.

  An untrained network is then unsure of everything, so that no pseudo-label of
  it passes a threshold: at the usual deviation, 512 features make logits that
  differ by 10, and nearly all images fall into one class with certainty.

  Args:
    x: Keras tensor [batch, features].
    num_classes: Number of outputs.

  Returns:
    Keras tensor [batch, num_classes].
  """
  initializer = tf.keras.initializers.RandomNormal(stddev=0.01)
  return output_layer(num_classes, kernel_initializer=initializer)(x)


def output_layer(num_outputs: int, **arguments) -> tf.keras.layers.Dense:
  """Returns a linear layer that computes in float32 under any precision policy.

  Logits in bfloat16 have three significant digits: classes tie, and confidences
  near a threshold cannot be told apart.

  Args:
    num_outputs: Number of outputs.
    **arguments: Further arguments of `tf.keras.layers.Dense`.
  """
  return layers.Dense(num_outputs, dtype='float32', **arguments)
