"""Weak and strong views of texts, as sequences of numbered words.

What mostly keeps the class of a text is to drop some of its words, and to move
words by a few places: the noise of Lample et al., "Unsupervised machine
translation using monolingual corpora only" (arXiv 1711.00043), Section 2.3.
"""

import dataclasses

import tensorflow as tf

from tff_ssl import checks, randomness

# The token behind the end of a text, and in the place of a dropped word.
PADDING = 0

# Keeps the draws of the two views, and of the parts of one, apart.
_WEAK, _STRONG = 0, 1
_DROPPED, _MOVED = 0, 1


@dataclasses.dataclass(frozen=True)
class TokenViews:
  """Views of token sequences: words are dropped and moved.

  The plain view is the example itself. Weak: each word is dropped with the
  probability `weak_dropout`. Strong: each word is dropped with the probability
  `strong_dropout`, and words are then put in the order of i + u, where i is the
  place of a word and u is uniform on [0, shuffle + 1), so that no word moves by
  more than `shuffle` places. A dropped word leaves padding (0) behind.

  The methods take `int32 [batch, length]`, where the batch may be unknown, and
  a seed: an `int32` or `int64` tensor of shape [2]. They return the same type
  and shape. The same seed gives the same views; both methods may be given the
  same seed, their draws are independent.

  Attributes:
    weak_dropout: Probability in [0, 1).
    strong_dropout: Probability in [0, 1).
    shuffle: The most places by which a word moves, at least 0.
  """

  weak_dropout: float = 0.1
  strong_dropout: float = 0.3
  shuffle: int = 3

  def __post_init__(self):
    for name in ('weak_dropout', 'strong_dropout'):
      if not 0 <= getattr(self, name) < 1:
        raise ValueError(
          f'{name} must be at least 0 and below 1, got {getattr(self, name)}.'
        )
    checks.integers_at_least(0, shuffle=self.shuffle)

  def plain(self, examples: tf.Tensor) -> tf.Tensor:
    """Returns the sequences themselves."""
    examples = tf.convert_to_tensor(examples)
    if examples.dtype != tf.int32 or examples.shape.rank != 2:
      raise TypeError(
        f'examples are {examples.dtype.name} {examples.shape}: give int32 '
        '[batch, length].'
      )
    return examples

  def weak(self, examples: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns sequences without some of their words."""
    seed = randomness.fold_in(seed, _WEAK)
    return _dropped(self.plain(examples), self.weak_dropout, seed)

  def strong(self, examples: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns sequences without more of their words, in another order."""
    seed = randomness.fold_in(seed, _STRONG)
    tokens = self.plain(examples)
    # The end of a text stays its end, whatever is dropped.
    places = tf.range(tf.shape(tokens)[1], dtype=tf.float32)
    places = tf.where(tokens == PADDING, places + self.shuffle + 1, places)
    tokens = _dropped(tokens, self.strong_dropout, seed)
    if not self.shuffle:
      return tokens
    moves = _uniform(tf.shape(tokens), randomness.fold_in(seed, _MOVED))
    order = tf.argsort(places + moves * (self.shuffle + 1), stable=True)
    return tf.gather(tokens, order, batch_dims=1)


def _dropped(tokens: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
  if not rate:
    return tokens
  draws = _uniform(tf.shape(tokens), randomness.fold_in(seed, _DROPPED))
  return tf.where(draws < rate, PADDING, tokens)


def _uniform(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  # The algorithm is named because the default may depend on the device.
  return tf.random.stateless_uniform(shape, seed, alg='philox')
