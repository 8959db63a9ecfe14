"""Networks for texts, as sequences of numbered words."""

from collections.abc import Sequence

import tensorflow as tf

from tff_ssl import checks
from tff_ssl.models import arguments, blocks, normalization

layers = tf.keras.layers

# Two for padding and unknown words, and one word.
_FEWEST_TOKENS = 3


class _WordAverage(layers.Layer):
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
  1607.01759), with a hidden layer beside.

  Args:
    input_shape: The length of a text in words, in a sequence of one number.
    num_classes: Number of outputs.
    norm: 'none', 'batch' or 'group': normalisation of the hidden layer, before
      its ReLU.
    num_tokens: How many numbers a word may have: padding (0), unknown (1) and
      the words.
    features: Size of embeddings and of the hidden layer.

  Returns:
    A `tf.keras.Model` from int32 [batch, length] to logits
    [batch, num_classes].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.check_network(num_classes, norm)
  return tf.keras.Sequential(
    [
      *_hidden(input_shape, norm, num_tokens, features),
      blocks.output_layer(num_classes),
    ],
    name='word_average',
  )


def word_average_encoder(
  input_shape: Sequence[int] = (64,),
  norm: str = 'none',
  num_tokens: int = 5000,
  features: int = 64,
) -> tf.keras.Model:
  """Builds `word_average` without its last layer.

  Args:
    input_shape: As of `word_average`.
    norm: Likewise.
    num_tokens: Likewise.
    features: Likewise; the number of outputs.

  Returns:
    A `tf.keras.Model` from int32 [batch, length] to float32 [batch, features].

  Raises:
    ValueError: If an argument is out of range.
  """
  arguments.NORM.check(norm)
  return tf.keras.Sequential(
    _hidden(input_shape, norm, num_tokens, features),
    name='word_average_encoder',
  )


def _hidden(input_shape, norm, num_tokens, features):
  checks.integers_at_least(1, features=features)
  checks.integers_at_least(_FEWEST_TOKENS, num_tokens=num_tokens)
  return [
    layers.Input(tuple(input_shape), dtype='int32'),
    _WordAverage(num_tokens, features),
    layers.Dense(features),
    normalization.make_norm(norm),
    layers.ReLU(),
  ]
