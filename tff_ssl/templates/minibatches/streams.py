"""Passes over selected examples, and the sets that examples lie in."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf


class Stream(NamedTuple):
  """Passes over selected examples, each in an order of its own.

  Attributes:
    size: `int32` scalar, examples in a pass.
    order: From (passes, seed) to the indices of all passes, `int [passes *
      size]`.
    is_hidden: Whether the labels may not be seen though they are there.
  """

  size: tf.Tensor
  order: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
  is_hidden: bool = False


def shuffled_passes(
  num_examples: tf.Tensor, num_passes: tf.Tensor | int, seed: tf.Tensor
) -> tf.Tensor:
  """Returns `num_passes` independent permutations, `int32 [passes, n]`."""
  keys = tf.random.stateless_uniform([num_passes, num_examples], seed)
  return tf.argsort(keys, axis=1)


def stream_of(
  labels: tf.Tensor, rows: str, redrawn_mask_ratio: float | None = None
) -> Stream:
  """Returns the stream of the examples of one kind.

  Args:
    labels: `int32 [n]`, -1 where an example has none.
    rows: 'all', 'labelled' or 'unlabelled'.
    redrawn_mask_ratio: See `Selection`.
  """
  num_examples = tf.shape(labels)[0]
  if rows == 'all':
    return Stream(
      num_examples,
      lambda passes, seed: tf.reshape(
        shuffled_passes(num_examples, passes, seed), [-1]
      ),
    )
  is_labelled = rows == 'labelled'
  if redrawn_mask_ratio is not None:
    masked = num_masked(num_examples, redrawn_mask_ratio)
    part = slice(masked, None) if is_labelled else slice(masked)
    return Stream(
      num_examples - masked if is_labelled else masked,
      lambda passes, seed: tf.reshape(
        shuffled_passes(num_examples, passes, seed)[:, part], [-1]
      ),
      not is_labelled,
    )
  wanted = labels >= 0 if is_labelled else labels < 0
  members = tf.cast(tf.where(wanted)[:, 0], tf.int32)
  size = tf.shape(members)[0]
  return Stream(
    size,
    lambda passes, seed: tf.gather(
      members, tf.reshape(shuffled_passes(size, passes, seed), [-1])
    ),
  )


def num_masked(num_examples: tf.Tensor, ratio: float) -> tf.Tensor:
  """Returns `min(int(ratio * n), n - 1)`, at least 0, as Python counts it."""
  share = tf.cast(ratio * tf.cast(num_examples, tf.float64), tf.int32)
  return tf.maximum(tf.minimum(share, num_examples - 1), 0)


def passes_for(
  stream: Stream, batch_size: int, steps: tf.Tensor | int
) -> tf.Tensor:
  """Returns how many passes fill so many minibatches; 0 without examples."""
  passes = -(-steps * batch_size // tf.maximum(stream.size, 1))
  return tf.where(stream.size > 0, passes, 0)


def sets_of(labels: tf.Tensor) -> tf.RaggedTensor:
  """Returns the indices of each set's examples; sets may differ in size.

  Args:
    labels: `int32 [n]`, the set that an example lies in; one below 0 lies in
      none.

  Returns:
    `int32 [sets, (size)]`, a row for each set that has examples, by its index.
  """
  by_set = tf.argsort(labels, stable=True)
  outside = tf.math.count_nonzero(labels < 0, dtype=tf.int32)
  by_set = by_set[outside:]
  _, _, sizes = tf.unique_with_counts(tf.gather(labels, by_set))
  return tf.RaggedTensor.from_row_lengths(by_set, sizes)
