"""What must not reach the model: values that are not finite, and their kin."""

import collections
from typing import TypeVar

import tensorflow as tf

from tff_ssl.templates import client_task

Structure = TypeVar('Structure')


def all_finite(structure) -> tf.Tensor:
  """Returns a `bool` scalar: whether every float in `structure` is finite."""
  return tf.reduce_all(
    [
      tf.reduce_all(tf.math.is_finite(value))
      for value in tf.nest.flatten(structure)
      if value.dtype.is_floating
    ]
  )


def find_faults(
  update: client_task.LocalUpdate,
  examples: client_task.Examples,
  further=(),
) -> tuple[collections.OrderedDict[str, tf.Tensor], tf.Tensor]:
  """Says why a client must be left out, and whether it counts.

  Args:
    update: The client's `LocalUpdate`.
    examples: Tensors of its examples.
    further: A structure of tensors that must be finite, too.

  Returns:
    The `bool` scalars `empty`, `non_finite` and `invalid`, and one that is true
    where none of them is.
  """
  # The examples too: augmentation may turn NaN pixels into finite ones.
  finite = all_finite(
    (update.delta, update.weight, update.metrics, examples, further)
  )
  faults = collections.OrderedDict(
    empty=tf.equal(tf.shape(examples['y'])[0], 0),
    non_finite=~finite,
    invalid=update.invalid,
  )
  return faults, ~tf.reduce_any(list(faults.values()))


def zero_unless(counts: tf.Tensor, values: Structure) -> Structure:
  """Returns a client's values, or zeros if it does not count.

  Args:
    counts: `bool` scalar.
    values: Structure of tensors.
  """
  return tf.nest.map_structure(
    lambda value: tf.where(counts, value, tf.zeros_like(value)), values
  )


def choose(
  condition: tf.Tensor, if_true: Structure, if_false: Structure
) -> Structure:
  """Returns one of two structures of tensors, by a `bool` scalar."""
  return tf.nest.map_structure(
    lambda a, b: tf.where(condition, a, b), if_true, if_false
  )


def if_finite(new: Structure, old: Structure) -> Structure:
  """Returns the new structure of tensors if it is finite, else the old one."""
  return choose(all_finite(new), new, old)
