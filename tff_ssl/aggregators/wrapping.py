"""What aggregators around other ones share: their types, and their wiring."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


def wrap_aggregation(
  processes: Mapping[str, tff.templates.AggregationProcess],
  split: tff.Computation,
  join: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, Any]],
  value_type: tff.Type,
  weight_type: tff.Type,
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

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        (name, process.initialize()) for name, process in processes.items()
      )
    )

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(value_type, tff.CLIENTS),
    tff.FederatedType(weight_type, tff.CLIENTS),
  )
  def aggregate(state, values, weights):
    parts = tff.federated_map(split, (values, weights))
    outputs = collections.OrderedDict(
      (name, process.next(state[name], *parts[name]))
      for name, process in processes.items()
    )
    states, results, measurements = (
      tff.federated_zip(
        collections.OrderedDict(
          (name, getattr(output, field)) for name, output in outputs.items()
        )
      )
      for field in ('state', 'result', 'measurements')
    )
    result, measurements = tff.federated_map(joined, (results, measurements))
    return tff.templates.MeasuredProcessOutput(states, result, measurements)

  return tff.templates.AggregationProcess(initialize, aggregate)


def _by_name(types) -> tff.Type:
  return tff.types.to_type(collections.OrderedDict(types))


def check_floats(value_type: tff.Type, expected: str) -> None:
  """Raises `TypeError` unless a type is a structure of float tensors.

  What the aggregator takes, `expected`, begins the message.
  """
  for spec in tf.nest.flatten(tff.types.type_to_tf_tensor_specs(value_type)):
    if not spec.dtype.is_floating:
      raise TypeError(f'{expected}, but V holds {spec.dtype.name}.')


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
  """Raises `TypeError` unless it is `<value=V, group=int32>`, V of floats."""
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
