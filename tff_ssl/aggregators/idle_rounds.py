"""Rounds in which only the server trains leave the aggregator alone."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


def rest_in_first_rounds(
  process: tff.templates.AggregationProcess, rounds: int
) -> tff.templates.AggregationProcess:
  """Makes the first rounds of an aggregator do nothing.

  In a server's warm-up every client sends zeros. An aggregator that adapts its
  bounds to the clients' values (as `tff.learning.robust_aggregator` does) would
  take the zeros for such values and lower its bounds, round by round. Here, in
  these rounds, its state stays as it is and its result is zero.

  Args:
    process: A weighted aggregation process.
    rounds: Number of first rounds in which all clients send zeros.

  Returns:
    A process of the same value, weight and result types, whose state also
    counts the rounds. Without such rounds, or where the process has no state
    that could change, it is `process` itself.
  """
  inner_type = process.state_type.member
  if not rounds or not tf.nest.flatten(
    tff.types.type_to_tf_tensor_specs(inner_type)
  ):
    return process
  _, value_type, weight_type = process.next.type_signature.parameter
  result_type = process.next.type_signature.result.result.member

  @tff.tensorflow.computation(np.int32, inner_type, inner_type, result_type)
  def rest(round_num, before, after, result):
    # Tensors of the state may change their shapes, which rules out `tf.where`.
    state, result = tf.cond(
      round_num < rounds,
      lambda: (before, tf.nest.map_structure(tf.zeros_like, result)),
      lambda: (after, result),
    )
    return collections.OrderedDict(round=round_num + 1, inner=state), result

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        round=tff.federated_value(0, tff.SERVER), inner=process.initialize()
      )
    )

  @tff.federated_computation(
    initialize.type_signature.result, value_type, weight_type
  )
  def next_fn(state, values, weights):
    output = process.next(state['inner'], values, weights)
    state, result = tff.federated_map(
      rest, (state['round'], state['inner'], output.state, output.result)
    )
    return tff.templates.MeasuredProcessOutput(
      state, result, output.measurements
    )

  return tff.templates.AggregationProcess(initialize, next_fn)
