"""Structures of tensors with one more dimension in front: groups, slots, ..."""

import tensorflow as tf


def tile(value, size: int):
  """Returns `size` copies of a structure of numbers or tensors, stacked."""

  def copies(leaf):
    leaf = tf.convert_to_tensor(leaf)
    return tf.tile(leaf[tf.newaxis], [size] + [1] * leaf.shape.rank)

  return tf.nest.map_structure(copies, value)


def stack(values):
  """Stacks structures of tensors, which are alike."""
  return tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *values)


def row(stacked, index):
  """Returns row `index`, `int32` scalar; the nearest if it does not exist."""
  return tf.nest.map_structure(
    lambda leaf: leaf[tf.clip_by_value(index, 0, leaf.shape[0] - 1)], stacked
  )


def is_missing(index, size: int) -> tf.Tensor:
  """Returns whether a stack of `size` rows has no row `index`, `bool` scalar.

  Args:
    index: `int32` scalar.
    size: Number of rows.
  """
  return (index < 0) | (index >= size)


def mean(stacked):
  """Returns the mean of all rows."""
  return tf.nest.map_structure(lambda leaf: tf.reduce_mean(leaf, 0), stacked)
