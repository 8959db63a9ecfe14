"""Rounds that leave an aggregator alone, since no client has anything to say.

An aggregator that adapts its bounds to the clients' values, as
`tff.learning.robust_aggregator` does, takes whatever it gets for such values:

  * In a server's warm-up every client sends zeros, which would lower the
    bounds, round by round.
  * In a round without clients the estimate of a quantile is 0 / 0. From then on
    the bounds are NaN, and bound nothing.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat
from tff_ssl.aggregators import inspection


def rest_without_clients(
  process: tff.templates.AggregationProcess,
  *,
  first_rounds: int = 0,
  min_clients: int = 1,
) -> tff.templates.AggregationProcess:
  """Makes an aggregator do nothing in rounds of too few clients.

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
    A process of the same value, weight and result types, whose state also
    counts the rounds. Where nothing could change, it is `process` itself.

  Raises:
    ValueError: If `min_clients` is above 1, and the aggregator adds noise, or
      the server sees each client's value.
  """
  if min_clients > 1:
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

  @tff.tensorflow.computation(weight_type.member)
  def one_if_it_counts(weight):
    return tf.cast(weight > 0, tf.int32)

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
