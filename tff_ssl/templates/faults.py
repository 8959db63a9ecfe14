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


def has_finite_norm(delta) -> tf.Tensor:
  """Returns a `bool` scalar: whether the L2 norm of a delta is finite.

  It is not where a number is not, nor where the squares of finite numbers
  exceed float32 (from 1.8e19 on). By such a norm nothing can be clipped: TFF's
  clipping gives NaN, and so tells who sent it, under differential privacy too.

  Args:
    delta: Structure of tensors.
  """
  floats = [v for v in tf.nest.flatten(delta) if v.dtype.is_floating]
  if not floats:
    return tf.constant(True)
  return tf.math.is_finite(
    tf.linalg.global_norm([tf.cast(value, tf.float32) for value in floats])
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
  finite = has_finite_norm(update.delta) & all_finite(
    (update.weight, update.metrics, examples, further)
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
