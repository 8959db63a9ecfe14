"""Fully connected networks."""

from collections.abc import Sequence

import tensorflow as tf

from tff_ssl import checks
from tff_ssl.models import arguments, blocks, normalization

layers = tf.keras.layers


def dense(
  input_shape: Sequence[int] = (28, 28, 1),
  num_classes: int = 10,
  norm: str = 'none',
  hidden: Sequence[int] = (200,),
) -> tf.keras.Model:
  """Builds a multilayer perceptron with ReLU.

  With the defaults, the 784-200-10 network that benchmarks of federated
  learning use.

  Args:
    input_shape: Shape of one example, flattened by the network.
    num_classes: Number of outputs.
    norm: 'none', 'batch' or 'group': normalisation of each hidden layer, before
      its ReLU.
    hidden: Sizes of the hidden layers; empty for logistic regression.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_network(num_classes, norm)
  if any(size < 1 for size in hidden):
    raise ValueError(f'hidden is {tuple(hidden)}: give positive sizes.')
  stack = [layers.Input(tuple(input_shape)), layers.Flatten()]
  for size in hidden:
    stack += [
      layers.Dense(size),
      normalization.make_norm(norm),
      layers.ReLU(),
    ]
  stack.append(blocks.output_layer(num_classes))
  return tf.keras.Sequential(stack, name='dense')


def dense_encoder(
  input_shape: Sequence[int] = (28, 28, 1),
  norm: str = 'none',
  features: int = 256,
) -> tf.keras.Model:
  """Builds one fully connected layer with ReLU, 784-256 with the defaults.

  The encoder of Hegde et al., "Label Hungry? Not Anymore: Towards Federated
  Semi-supervised Learning".

  Args:
    input_shape: Shape of one example, flattened by the network.
    norm: 'none', 'batch' or 'group': normalisation ahead of the ReLU.
    features: Number of outputs.

  Returns:
    A `tf.keras.Model` from float32 [batch, *input_shape] to float32
    [batch, features].

  Raises:
    ValueError: If an argument is out of range.
  """
  checks.integers_at_least(1, features=features)
  arguments.NORM.check(norm)
  return tf.keras.Sequential(
    [
      layers.Input(tuple(input_shape)),
      layers.Flatten(),
      layers.Dense(features),
      normalization.make_norm(norm),
      layers.ReLU(),
    ],
    name='dense_encoder',
  )
