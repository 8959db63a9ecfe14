"""Weak and strong views of feature vectors, such as the rows of a table.

A vector has no mirror image. What keeps its class is noise that is small beside
the spread of a feature, and to replace some features by those of another
example, as in SCARF (Bahri et al., arXiv 2106.15147, Section 3) and VIME (Yoon
et al., NeurIPS 2020, Section 4.1).
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from tff_ssl import randomness

# Keeps the draws of the two views, and of the parts of one, apart.
_WEAK, _STRONG = 0, 1
_NOISE, _PARTNERS, _REPLACED = 0, 1, 2


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
    for name in ('mean', 'stddev'):
      for value in getattr(self, name):
        if not math.isfinite(value) or (name == 'stddev' and value <= 0):
          raise ValueError(
            f'{name} has a {value}: give finite numbers, those of stddev above '
            '0.'
          )
    if not (math.isfinite(self.noise) and self.noise >= 0):
      raise ValueError(
        f'noise must be finite and at least 0, got {self.noise}.'
      )
    if not 0 <= self.corruption <= 1:
      raise ValueError(
        f'corruption must be between 0 and 1, got {self.corruption}.'
      )
    if self.columns is not None and (
      len(self.columns) != len(self.mean) or min(self.columns) < 0
    ):
      raise ValueError(
        f'columns has {len(self.columns)} numbers for {len(self.mean)} '
        'features: give one for each, from 0.'
      )

  def plain(self, examples: tf.Tensor) -> tf.Tensor:
    """Returns the vectors, standardised."""
    examples = tf.convert_to_tensor(examples)
    if examples.dtype != tf.float32 or examples.shape.rank != 2:
      raise TypeError(
        f'examples are {examples.dtype.name} {examples.shape}: give float32 '
        '[batch, features].'
      )
    if examples.shape[1] != len(self.mean):
      raise ValueError(
        f'examples have {examples.shape[1]} features, but mean and stddev '
        f'{len(self.mean)}: give one number for each feature.'
      )
    return (examples - np.float32(self.mean)) / np.float32(self.stddev)

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


def _uniform(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  # The algorithm is named because the default may depend on the device.
  return tf.random.stateless_uniform(shape, seed, alg='philox')


def _order(z: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Returns a random order of the examples, `int32 [batch]`."""
  return tf.argsort(_uniform([tf.shape(z)[0]], seed))
