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
    A process of the same value, weight and result types. Where there are first
    rounds, its state also counts the rounds. Where nothing could change, it is
    `process` itself.

  Raises:
    ValueError: If `min_clients` is above 1, and the aggregator adds noise, or
      the server sees each client's value.
  """
  is_private = inspection.is_private(process)
  if min_clients > 1 and is_private:
    raise ValueError(
      f'min_group_size={min_clients} does not fit a model_aggregator that adds '
      'noise: whether a result is shown would tell, without noise, how many '
      'clients there were. Leave it out.'
    )
  if min_clients > 1 and inspection.collects_values(process):
    raise ValueError(
      f'min_group_size={min_clients} hides nobody from a model_aggregator that '
      'is a median or the like: the server sees the value of each client. '
      'Leave it out.'
    )
  inner_type = process.state_type.member
  has_state = bool(
    tf.nest.flatten(tff.types.type_to_tf_tensor_specs(inner_type))
  )
  counts_rounds = first_rounds > 0 and has_state
  counts_clients = min_clients > 1 or (has_state and not is_private)
  if not counts_rounds and not counts_clients:
    return process
  _, value_type, weight_type = process.next.type_signature.parameter
  result_type = process.next.type_signature.result.result.member
  sum_ones = (
    (lambda ones: tff.federated_secure_sum_bitwidth(ones, bitwidth=1))
    if inspection.has_secure_sums(process.next)
    else tff.federated_sum
  )

  @tff.tensorflow.computation(weight_type.member)
  def one_if_it_counts(weight):
    return tf.cast(weight > 0, tf.int32)

  @tff.tensorflow.computation(
    np.int32, np.int32, inner_type, inner_type, result_type
  )
  def rest(round_num, clients, before, after, result):
    rests = tf.constant(False)
    if counts_rounds:
      rests |= round_num < first_rounds
    if counts_clients:
      rests |= clients < min_clients
    # Tensors of the state may change their shapes, which rules out `tf.where`.
    state, result = tf.cond(
      rests,
      lambda: (before, tf.nest.map_structure(tf.zeros_like, result)),
      lambda: (after, result),
    )
    if counts_rounds:
      state = collections.OrderedDict(round=round_num + 1, inner=state)
    return state, result

  @tff.federated_computation
  def initialize():
    inner = process.initialize()
    if not counts_rounds:
      return inner
    return tff.federated_zip(
      collections.OrderedDict(
        round=tff.federated_value(0, tff.SERVER), inner=inner
      )
    )

  @tff.federated_computation(
    initialize.type_signature.result, value_type, weight_type
  )
  def next_fn(state, values, weights):
    zero = tff.federated_value(0, tff.SERVER)
    before = state['inner'] if counts_rounds else state
    output = process.next(before, values, weights)
    clients = (
      sum_ones(tff.federated_map(one_if_it_counts, weights))
      if counts_clients
      else zero
    )
    state, result = tff.federated_map(
      rest,
      (
        state['round'] if counts_rounds else zero,
        clients,
        before,
        output.state,
        output.result,
      ),
    )
    return tff.templates.MeasuredProcessOutput(
      state, result, output.measurements
    )

  return tff.templates.AggregationProcess(initialize, next_fn)
