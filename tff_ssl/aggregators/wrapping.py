"""What aggregators around other ones share: their types, and their wiring."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat


def wrap_aggregation(
  processes: Mapping[str, tff.templates.AggregationProcess],
  split: compat.Computation,
  join: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, Any]],
  value_type: compat.Type,
  weight_type: compat.Type,
) -> tff.templates.AggregationProcess:
  """Aggregates parts of what clients send, each by itself, and joins them.

  Args:
    processes: The inner processes by name of their part.
    split: From a client's value and weight to its parts by name, each a tuple
      of what the inner process takes.
    join: TensorFlow function from the inner results and the inner measurements,
      both by name, to the result and the measurements.
    value_type: Unplaced type of a client's value.
    weight_type: Unplaced type of its weight.

  Returns:
    A weighted process whose state has that of each inner process by name.
  """
  outputs = {
    name: process.next.type_signature.result
    for name, process in processes.items()
  }
  joined = tff.tensorflow.computation(
    join,
    [
      _by_name(
        (name, output.result.member) for name, output in outputs.items()
      ),
      _by_name(
        (name, output.measurements.member) for name, output in outputs.items()
      ),
    ],
  )

  @compat.federated_computation
  def initialize():
    return compat.federated_zip(
      collections.OrderedDict(
        (name, process.initialize()) for name, process in processes.items()
      )
    )

  @compat.federated_computation(
    initialize.type_signature.result,
    compat.FederatedType(value_type, compat.CLIENTS),
    compat.FederatedType(weight_type, compat.CLIENTS),
  )
  def aggregate(state, values, weights):
    parts = compat.federated_map(split, (values, weights))
    outputs = collections.OrderedDict(
      (name, process.next(state[name], *parts[name]))
      for name, process in processes.items()
    )
    states, results, measurements = (
      compat.federated_zip(
        collections.OrderedDict(
          (name, getattr(output, field)) for name, output in outputs.items()
        )
      )
      for field in ('state', 'result', 'measurements')
    )
    result, measurements = compat.federated_map(joined, (results, measurements))
    return tff.templates.MeasuredProcessOutput(states, result, measurements)

  return tff.templates.AggregationProcess(initialize, aggregate)


def _by_name(types) -> compat.Type:
  return compat.to_type(collections.OrderedDict(types))


def check_floats(value_type: compat.Type, expected: str) -> None:
  """Raises `TypeError` unless a type is a structure of float tensors.

  What the aggregator takes, `expected`, begins the message.
  """
  for spec in tf.nest.flatten(compat.type_to_tf_tensor_specs(value_type)):
    if not spec.dtype.is_floating:
      raise TypeError(f'{expected}, but V holds {spec.dtype.name}.')


def check_weight(weight_type: compat.Type) -> None:
  """Raises `TypeError` unless the type of the weight is a float scalar."""
  if (
    not isinstance(weight_type, compat.TensorType)
    or tf.TensorShape(weight_type.shape).rank != 0
    or not tf.as_dtype(weight_type.dtype).is_floating
  ):
    raise TypeError(
      f'The weight must be a float scalar, but its type is {weight_type}.'
    )


def check_grouped(value_type: compat.Type, expected: str) -> None:
  """Raises `TypeError` unless it is `<value=V, group=int32>`, V of floats."""
  names = (
    [name for name, _ in compat.iter_elements(value_type)]
    if isinstance(value_type, compat.StructType)
    else []
  )
  if names != ['value', 'group']:
    raise TypeError(f'{expected}, but the value type is {value_type}.')
  if not value_type['group'].is_equivalent_to(
    compat.TensorType(tf.int32.as_numpy_dtype)
  ):
    raise TypeError(f'{expected}, but group is {value_type["group"]}.')
  check_floats(value_type['value'], expected)
