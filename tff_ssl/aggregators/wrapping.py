"""Aggregators around other ones: their wiring, rests, and checks of types."""

import collections
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat
from tff_ssl.aggregators import inspection


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
  """
  outputs = {
    name: process.next.type_signature.result
    for name, process in processes.items()
  }
  joined = tff.tensorflow.computation(
    join,
    [
      compat.to_type(
        collections.OrderedDict(
          (name, getattr(output, field).member)
          for name, output in outputs.items()
        )
      )
      for field in ('result', 'measurements')
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


def rest_without_clients(
  process: tff.templates.AggregationProcess,
  *,
  first_rounds: int = 0,
  min_clients: int = 1,
) -> tff.templates.AggregationProcess:
  """Makes an aggregator do nothing in rounds of too few clients.

  An aggregator that adapts its bounds to the clients' values, as
  `tff.learning.robust_aggregator` does, takes whatever it gets for such values.
  In a server's warm-up every client sends zeros, which would lower the bounds,
  round by round. In a round without clients the estimate of a quantile is 0/0:
  from then on the bounds are NaN, and bound nothing.

  In these rounds its state stays as it is, and its result is zero. A client
  counts if its weight is above 0.

  With differential privacy a round without clients is like any other: the noise
  hides how many there were. There the aggregator rests in the first rounds
  alone.

  Args:
    process: A weighted aggregation process.
    first_rounds: Number of first rounds in which all clients send zeros.
    min_clients: The fewest clients whose result is shown, at least 1; the
      `min_group_size` of a `Wiring`. They are counted by a secure sum where the
      aggregator has secure sums.

  Returns:
    A process whose state also counts the rounds; where nothing could change,
    `process` itself.
  """
  _check_hides(process, min_clients)
  inner_type = process.state_type.member
  inner_specs = compat.type_to_tf_tensor_specs(inner_type)
  has_state = bool(tf.nest.flatten(inner_specs))
  counts_clients = min_clients > 1 or (
    has_state and not inspection.is_private(process)
  )
  if not counts_clients and not (has_state and first_rounds):
    return process
  _, value_type, weight_type = process.next.type_signature.parameter
  sum_ones = inspection.sum_of_bits(process.next)

  @compat.federated_computation
  def initialize():
    return compat.federated_zip(
      collections.OrderedDict(
        round=compat.federated_value(0, compat.SERVER),
        inner=process.initialize(),
      )
    )

  state_type = initialize.type_signature.result

  one_if_it_counts = tff.tensorflow.computation(
    lambda weight: tf.cast(weight > 0, tf.int32), weight_type.member
  )

  @tff.tensorflow.computation(
    state_type.member,
    inner_type,
    process.next.type_signature.result.result.member,
    np.int32,
  )
  def rest(before, after, result, clients):
    rests = before['round'] < first_rounds
    if counts_clients:
      rests |= clients < min_clients
    # Tensors of the state may change their shapes, which rules out `tf.where`.
    inner, result = tf.cond(
      rests,
      lambda: (before['inner'], tf.nest.map_structure(tf.zeros_like, result)),
      lambda: (after, result),
    )
    return collections.OrderedDict(
      round=before['round'] + 1, inner=inner
    ), result

  @compat.federated_computation(state_type, value_type, weight_type)
  def next_fn(state, values, weights):
    output = process.next(state['inner'], values, weights)
    clients = compat.federated_value(0, compat.SERVER)
    if counts_clients:
      clients = sum_ones(compat.federated_map(one_if_it_counts, weights))
    state, result = compat.federated_map(
      rest, (state, output.state, output.result, clients)
    )
    measured = output.measurements
    return tff.templates.MeasuredProcessOutput(state, result, measured)

  return tff.templates.AggregationProcess(initialize, next_fn)


def _check_hides(process, min_clients: int) -> None:
  """Raises `ValueError` where a least number of clients hides nobody."""
  if min_clients == 1:
    return
  if inspection.is_private(process):
    raise ValueError(
      f'min_group_size={min_clients} does not fit a model_aggregator that adds '
      'noise: whether a result is shown would tell, without noise, how many '
      'clients there were. Leave it out.'
    )
  if inspection.collects_values(process):
    raise ValueError(
      f'min_group_size={min_clients} hides nobody from a model_aggregator that '
      'is a median or the like: the server sees the value of each client. '
      'Leave it out.'
    )


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
