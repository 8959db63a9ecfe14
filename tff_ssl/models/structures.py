"""What goes into a model: one tensor, or a structure of several.

A model of several inputs takes a dict of tensors, or a tuple, whose first
dimensions are all the same n, the number of examples.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_ssl import compat, protocols


def are_several(x: Any) -> bool:
  """Whether this is a structure of inputs, or of their specs."""
  return isinstance(x, (Mapping, tuple))


def refuse_several(x: Any, what: str) -> None:
  """Raises `TypeError` for several inputs; `what` is such as 'A head takes'."""
  if are_several(x):
    names = ', '.join(x) if isinstance(x, Mapping) else f'{len(x)} of a tuple'
    raise TypeError(
      f'{what} one tensor for each example, and here are several inputs '
      f'({names}): join them into one tensor, or choose another process.'
    )


def size(x: protocols.Structure) -> tf.Tensor:
  """Returns n, an `int32` scalar."""
  return tf.shape(tf.nest.flatten(x)[0])[0]


def rows(
  x: protocols.Structure, begin: tf.Tensor | int, end: tf.Tensor | int
) -> protocols.Structure:
  """Returns the examples from `begin` to before `end`."""
  return tf.nest.map_structure(lambda part: part[begin:end], x)


def gather(x: protocols.Structure, indices: tf.Tensor) -> protocols.Structure:
  """Returns the examples with these indices, `int [m]`."""
  return tf.nest.map_structure(lambda part: _gather(part, indices), x)


def _gather(part: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
  part = tf.convert_to_tensor(part)
  size = part.shape[1:].num_elements()
  if part.dtype != tf.uint8 or not size or size % 4:
    return tf.gather(part, indices)
  # TensorFlow gathers no bytes on a GPU, but words of four of them.
  words = tf.bitcast(tf.reshape(part, [-1, size // 4, 4]), tf.int32)
  found = tf.bitcast(tf.gather(words, indices), tf.uint8)
  return tf.reshape(found, [-1, *part.shape[1:]])


def concat(batches: Sequence[protocols.Structure]) -> protocols.Structure:
  """Returns the examples of several batches as one."""
  return tf.nest.map_structure(
    lambda *parts: tf.concat(parts, axis=0), *batches
  )


def type_from_specs(specs) -> compat.Type:
  """Returns the unplaced `tff.Type` of a structure of `tf.TensorSpec`."""
  return compat.to_type(
    tf.nest.map_structure(
      lambda spec: (spec.dtype.as_numpy_dtype, spec.shape.as_list()), specs
    )
  )


def describe(specs: protocols.Structure) -> str:
  """Returns shapes of one example in words, such as `(28, 28, 1)`.

  They do not depend on the order of a dict, in which tensors have names.
  """
  if isinstance(specs, Mapping):
    parts = (f'{name}: {describe(specs[name])}' for name in sorted(specs))
    return f'{{{", ".join(parts)}}}'
  if isinstance(specs, tuple):
    return f'({", ".join(map(describe, specs))})'
  return str(tuple(specs.shape.as_list()[1:]))


def signature(value: Any) -> str:
  """Returns dtype and shape of an array, a tensor or a spec in words."""
  return f'{tf.as_dtype(value.dtype).name}{tf.TensorShape(value.shape)}'
