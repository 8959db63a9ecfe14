"""Weak and strong views of examples that are no images.

A vector has no mirror image. What keeps its class is noise that is small beside
the spread of a feature, and to replace some features by those of another
example, as in SCARF (Bahri et al., arXiv 2106.15147, Section 3) and VIME (Yoon
et al., NeurIPS 2020, Section 4.1). What mostly keeps the class of a text is to
drop some of its words, and to move words by a few places: the noise of Lample
et al., "Unsupervised machine translation using monolingual corpora only" (arXiv
1711.00043), Section 2.3.
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from tff_ssl import checks, protocols, randomness
from tff_ssl.models import structures

# The token behind the end of a text, and in the place of a dropped word.
PADDING = 0

# Keeps the draws of the two views, and of the parts of one, apart.
_WEAK, _STRONG = 0, 1
_NOISE, _PARTNERS, _REPLACED = 0, 1, 2
_DROPPED, _MOVED = 0, 1


@dataclasses.dataclass(frozen=True)
class PlainViews:
  """Views of examples that have no augmentation, such as feature vectors.

  The counterpart of `ImageViews` with the same methods; weak and strong views
  are the examples themselves. The methods take `float32` examples as they are
  or `uint8` examples, which are divided by 255, of shape [batch, ...], and
  return `float32` of the same shape: (example - mean) / stddev. Of several
  inputs, a dict or a tuple, each is treated like that.

  Attributes:
    mean: Number subtracted from every feature.
    stddev: Number that every feature is divided by.
  """

  mean: float = 0.0
  stddev: float = 1.0

  def __post_init__(self):
    check_normalisation(self.mean, self.stddev)

  def plain(self, examples: protocols.Structure) -> protocols.Structure:
    """Returns the examples, normalised."""
    if structures.are_several(examples):
      return tf.nest.map_structure(self.plain, examples)
    examples = tf.convert_to_tensor(examples)
    if examples.dtype == tf.uint8:
      examples = tf.cast(examples, tf.float32) / 255
    elif examples.dtype != tf.float32:
      raise TypeError(
        f'examples must be float32 or uint8, got {examples.dtype.name}: cast '
        'them first.'
      )
    return (examples - self.mean) / self.stddev

  def weak(
    self, examples: protocols.Structure, seed: tf.Tensor
  ) -> protocols.Structure:
    """Returns `plain(examples)`; the seed is not used."""
    del seed
    return self.plain(examples)

  strong = weak


def check_normalisation(mean: float, stddev: float) -> None:
  """Raises `ValueError` unless both are finite, and `stddev` is above 0."""
  if not math.isfinite(mean):
    raise ValueError(f'mean must be finite, got {mean}.')
  if not (math.isfinite(stddev) and stddev > 0):
    raise ValueError(f'stddev must be finite and above 0, got {stddev}.')


@dataclasses.dataclass(frozen=True)
class VectorViews:
  """Views of feature vectors: noise, and features of other examples.

  The plain view is z = (x - mean) / stddev. Weak: z + noise * e, with e from
  the standard normal distribution. Strong: each column of z is replaced with
  the probability `corruption` by that of another example, which is the same for
  all columns of an example; then noise is added as in the weak view. The other
  examples are those of the minibatch in a random order, so that replaced
  features follow the distribution of the participant's data.

  The methods take vectors `float32 [batch, F]`, where the batch may be unknown,
  and a seed: an `int32` or `int64` tensor of shape [2]. They return `float32`
  of the same shape. The same seed gives the same views; both methods may be
  given the same seed, their draws are independent.

  Attributes:
    mean: What is subtracted from each feature, F numbers.
    stddev: What each feature is divided by, F numbers.
    noise: Standard deviation of the noise, at least 0; in units of `stddev`.
    corruption: Probability in [0, 1] that a column of the strong view is
      another example's.
    columns: For each feature the number of its column, F integers from 0;
      features of one column, such as those of one word, are replaced together.
      By default each feature is a column.
  """

  mean: tuple[float, ...]
  stddev: tuple[float, ...]
  noise: float = 0.1
  corruption: float = 0.3
  columns: tuple[int, ...] | None = None

  def __post_init__(self):
    if not self.mean or len(self.mean) != len(self.stddev):
      raise ValueError(
        'mean and stddev must hold one number for each feature, got '
        f'{len(self.mean)} and {len(self.stddev)}.'
      )
    for mean, stddev in zip(self.mean, self.stddev, strict=True):
      check_normalisation(mean, stddev)
    checks.numbers_at_least(0, noise=self.noise)
    checks.fractions(corruption=self.corruption)
    if self.columns is not None and (
      len(self.columns) != len(self.mean) or min(self.columns) < 0
    ):
      raise ValueError(
        f'columns has {len(self.columns)} numbers for {len(self.mean)} '
        'features: give one for each, from 0.'
      )

  def plain(self, examples: tf.Tensor) -> tf.Tensor:
    """Returns the vectors, standardised."""
    examples = _rows(examples, tf.float32, 'features')
    if examples.shape[1] != len(self.mean):
      raise ValueError(
        f'examples have {examples.shape[1]} features, but mean and stddev '
        f'{len(self.mean)}: give one number for each feature.'
      )
    mean, stddev = np.asarray([self.mean, self.stddev], np.float32)
    return (examples - mean) / stddev

  def weak(self, examples: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns standardised vectors with noise."""
    seed = randomness.fold_in(seed, _WEAK)
    return self._with_noise(self.plain(examples), seed)

  def strong(self, examples: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns standardised vectors with noise and foreign features."""
    seed = randomness.fold_in(seed, _STRONG)
    z = self.plain(examples)
    if self.corruption:
      columns = self.columns or range(len(self.mean))
      draws = _uniform(
        [tf.shape(z)[0], max(columns) + 1], randomness.fold_in(seed, _REPLACED)
      )
      z = tf.where(
        tf.gather(draws, list(columns), axis=1) < self.corruption,
        tf.gather(z, _order(z, randomness.fold_in(seed, _PARTNERS))),
        z,
      )
    return self._with_noise(z, seed)

  def _with_noise(self, z: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    if not self.noise:
      return z
    return z + self.noise * tf.random.stateless_normal(
      tf.shape(z), randomness.fold_in(seed, _NOISE), alg='philox'
    )


def _order(z: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns a random order of the examples, `int32 [batch]`."""
  return tf.argsort(_uniform([tf.shape(z)[0]], seed))


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
    return _rows(examples, tf.int32, 'length')

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


def _rows(examples: tf.Tensor, dtype: tf.DType, axis: str) -> tf.Tensor:
  """Returns examples that are a row each; refuses others."""
  examples = tf.convert_to_tensor(examples)
  if examples.dtype != dtype or examples.shape.rank != 2:
    raise TypeError(
      f'examples are {examples.dtype.name} {examples.shape}: give {dtype.name} '
      f'[batch, {axis}].'
    )
  return examples


def _dropped(tokens: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
  if not rate:
    return tokens
  draws = _uniform(tf.shape(tokens), randomness.fold_in(seed, _DROPPED))
  return tf.where(draws < rate, PADDING, tokens)


def _uniform(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  # The algorithm is named because the default may depend on the device.
  return tf.random.stateless_uniform(shape, seed, alg='philox')
