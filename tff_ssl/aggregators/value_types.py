"""What aggregators of this library take: floats, and a weight."""

import tensorflow as tf
import tensorflow_federated as tff


def check_floats(value_type: tff.Type, expected: str) -> None:
  """Raises `TypeError` unless a type is a structure of float tensors.

  Args:
    value_type: The unplaced type.
    expected: Begins the message: what the aggregator takes.
  """
  for leaf in _leaves(value_type):
    if not (
      isinstance(leaf, tff.TensorType) and tf.as_dtype(leaf.dtype).is_floating
    ):
      raise TypeError(f'{expected}, but V holds {leaf}.')


def check_weight(weight_type: tff.Type) -> None:
  """Raises `TypeError` unless the type of the weight is a float scalar."""
  if (
    not isinstance(weight_type, tff.TensorType)
    or tf.TensorShape(weight_type.shape).rank != 0
    or not tf.as_dtype(weight_type.dtype).is_floating
  ):
    raise TypeError(
      f'The weight must be a float scalar, but its type is {weight_type}.'
    )


def check_grouped(value_type: tff.Type, expected: str) -> None:
  """Raises `TypeError` unless a type is `<value=V, group=int32>`, V of floats.

  Args:
    value_type: The unplaced type.
    expected: As in `check_floats`.
  """
  names = (
    [name for name, _ in tff.structure.iter_elements(value_type)]
    if isinstance(value_type, tff.StructType)
    else []
  )
  if names != ['value', 'group']:
    raise TypeError(f'{expected}, but the value type is {value_type}.')
  if not value_type['group'].is_equivalent_to(
    tff.TensorType(tf.int32.as_numpy_dtype)
  ):
    raise TypeError(f'{expected}, but group is {value_type["group"]}.')
  check_floats(value_type['value'], expected)


def _leaves(value_type: tff.Type) -> list[tff.Type]:
  if isinstance(value_type, tff.StructType):
    return [
      leaf
      for _, member in tff.structure.iter_elements(value_type)
      for leaf in _leaves(member)
    ]
  return [value_type]
