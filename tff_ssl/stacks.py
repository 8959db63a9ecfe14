"""Stacks: structures of tensors with one more dimension in front, for rows.

Models of groups, states of slots, replicas of a server's training and rows of a
table of clients are stacks.
"""

from collections.abc import Iterable
from typing import TypeVar

import tensorflow as tf

Structure = TypeVar('Structure')


def tile(value: Structure, size: int) -> Structure:
  """Returns `size` copies of a structure of numbers or tensors, stacked."""

  def copies(leaf):
    leaf = tf.convert_to_tensor(leaf)
    return tf.tile(leaf[tf.newaxis], [size] + [1] * leaf.shape.rank)

  return tf.nest.map_structure(copies, value)


def stack(values: Iterable[Structure]) -> Structure:
  """Returns the stack whose rows are these structures of tensors."""
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *values)


def row(stacked: Structure, index: tf.Tensor | int) -> Structure:
  """Returns row `index`, `int32` scalar; the nearest if it does not exist."""
  return tf.nest.map_structure(
    lambda leaf: leaf[tf.clip_by_value(index, 0, leaf.shape[0] - 1)], stacked
  )


def mean(stacked: Structure) -> Structure:
  """Returns the mean of all rows."""
  return tf.nest.map_structure(lambda leaf: tf.reduce_mean(leaf, 0), stacked)


def is_missing(index: tf.Tensor, size: int) -> tf.Tensor:
  """Returns whether a stack of `size` rows has no such row, `bool` scalar."""
  return (index < 0) | (index >= size)


def per_row(numbers: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
  """Returns `[size]` numbers in a shape that goes with the rows of a leaf."""
  return tf.reshape(numbers, [-1] + [1] * (leaf.shape.rank - 1))


def to_rows(value: Structure, numbers: tf.Tensor) -> Structure:
  """Returns the stack whose rows are a value times one number for each row."""

  def rows_of(leaf):
    leaf = leaf[tf.newaxis]
    return tf.cast(per_row(numbers, leaf), leaf.dtype) * leaf

  return tf.nest.map_structure(rows_of, value)


def scatter(
  value: Structure, index: tf.Tensor, size: int, counts: tf.Tensor
) -> tuple[Structure, tf.Tensor]:
  """Puts a value into its row of a stack of zeros; summed up for `merge`.

  The stack is all zeros unless the value counts. Beside it stands `float32
  [size]`, one where there is a new row.
  """
  mask = tf.one_hot(index, size) * tf.cast(counts, tf.float32)
  # Not by the mask alone: zero times what is not finite is not zero.
  kept = tf.nest.map_structure(
    lambda leaf: tf.where(counts, leaf, tf.zeros_like(leaf)), value
  )
  return to_rows(kept, mask), mask


def merge(stacked: Structure, rows: Structure, taken: tf.Tensor) -> Structure:
  """Returns a stack with new rows, sums over clients of what `scatter` gives.

  A row that several clients claim stays as it was.
  """
  # More than one is a row that several clients claim: their sum says nothing.
  return tf.nest.map_structure(
    lambda old, new: tf.where(tf.equal(per_row(taken, old), 1), new, old),
    stacked,
    rows,
  )
