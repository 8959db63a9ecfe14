"""Networks of dense layers, for vectors, images and texts; heads of encoders.

Networks take what `tff_ssl.models.ModelSpec.build` says. Heads are what is put
on an encoder (`tff_ssl.models.split`): they map features, float32
[batch, num_features], to float32 [batch, num_outputs]. All raise `ValueError`
for what is out of range.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_ssl import checks
from tff_ssl.models import blocks

layers = tf.keras.layers

# Two for padding and unknown words, and one word.
_FEWEST_TOKENS = 3


def dense(
  input_shape: Sequence[int] = (28, 28, 1),
  num_classes: int = 10,
  norm: str = 'none',
  hidden: Sequence[int] = (200,),
) -> tf.keras.Model:
  """Builds a multilayer perceptron with ReLU.

  With the defaults, the 784-200-10 network that benchmarks of federated
  learning use. `hidden` has the sizes of the hidden layers, each normalised
  ahead of its ReLU; none make it logistic regression.
  """
  blocks.check_network(num_classes, norm)
  if any(size < 1 for size in hidden):
    raise ValueError(f'hidden is {tuple(hidden)}: give positive sizes.')
  stack = [layers.Input(tuple(input_shape)), layers.Flatten()]
  for size in hidden:
    stack += _hidden_layer(size, norm)
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
  """
  checks.integers_at_least(1, features=features)
  stack = [layers.Input(tuple(input_shape)), layers.Flatten()]
  stack += _hidden_layer(features, norm)
  return tf.keras.Sequential(stack, name='dense_encoder')


def _hidden_layer(size, norm):
  return [layers.Dense(size), blocks.make_norm(norm), layers.ReLU()]


class _WordAverage(tf.keras.layers.Layer):
  """The mean of the embeddings of the words of a text; 0 without any."""

  def __init__(self, num_tokens: int, features: int):
    super().__init__()
    # Larger than Keras's default, from which small SGD steps lead nowhere: a
    # word's gradient is that of the mean, divided by the length of the text.
    self._embedding = layers.Embedding(
      num_tokens,
      features,
      embeddings_initializer=tf.keras.initializers.RandomNormal(stddev=0.3),
    )

  def call(self, tokens):
    words = self._embedding(tokens)
    is_word = tf.cast(tokens > 0, words.dtype)[..., tf.newaxis]
    total = tf.reduce_sum(words * is_word, axis=1)
    return total / tf.maximum(tf.reduce_sum(is_word, axis=1), 1)


def word_average(
  input_shape: Sequence[int] = (64,),
  num_classes: int = 2,
  norm: str = 'none',
  num_tokens: int = 5000,
  features: int = 64,
) -> tf.keras.Model:
  """Builds a classifier of the mean of word embeddings.

  As in Joulin et al., "Bag of tricks for efficient text classification" (arXiv
  1607.01759), with a hidden layer beside: `input_shape` is the length of a text
  in words, `num_tokens` says how many numbers they have: padding (0), unknown
  (1) and the words; embeddings and the hidden layer have `features` numbers.
  """
  blocks.check_network(num_classes, norm)
  stack = _word_layers(input_shape, norm, num_tokens, features)
  stack.append(blocks.output_layer(num_classes))
  return tf.keras.Sequential(stack, name='word_average')


def word_average_encoder(
  input_shape: Sequence[int] = (64,),
  norm: str = 'none',
  num_tokens: int = 5000,
  features: int = 64,
) -> tf.keras.Model:
  """Builds `word_average` without its last layer."""
  stack = _word_layers(input_shape, norm, num_tokens, features)
  return tf.keras.Sequential(stack, name='word_average_encoder')


def _word_layers(input_shape, norm, num_tokens, features):
  checks.integers_at_least(1, features=features)
  checks.integers_at_least(_FEWEST_TOKENS, num_tokens=num_tokens)
  return [
    layers.Input(tuple(input_shape), dtype='int32'),
    _WordAverage(num_tokens, features),
    *_hidden_layer(features, norm),
  ]


def linear_head(num_features: int, num_outputs: int) -> tf.keras.Model:
  """Builds one linear layer, such as a classifier that gives logits."""
  checks.integers_at_least(
    1, num_features=num_features, num_outputs=num_outputs
  )
  return tf.keras.Sequential(
    [layers.Input((num_features,)), blocks.output_layer(num_outputs)],
    name='linear_head',
  )


def unsure_head(num_features: int, num_outputs: int) -> tf.keras.Model:
  """Builds a linear classifier whose weights start near 0.

  For encoders of many features; `tff_ssl.models.blocks.classifier` says why.
  """
  checks.integers_at_least(
    1, num_features=num_features, num_outputs=num_outputs
  )
  features = layers.Input((num_features,))
  logits = blocks.classifier(features, num_outputs)
  return tf.keras.Model(features, logits, name='unsure_head')


def dense_decoder(
  num_features: int, output_shape: Sequence[int]
) -> tf.keras.Model:
  """Builds one linear layer to an image of height, width and channels.

  It gives logits of pixels, of which the sigmoid is an image.
  """
  checks.integers_at_least(1, num_features=num_features)
  if not output_shape or min(output_shape) < 1:
    raise ValueError(
      f'output_shape is {tuple(output_shape)}: give positive sizes.'
    )
  return tf.keras.Sequential(
    [
      layers.Input((num_features,)),
      blocks.output_layer(int(np.prod(output_shape))),
      layers.Reshape(tuple(output_shape), dtype='float32'),
    ],
    name='dense_decoder',
  )
