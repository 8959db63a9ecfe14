"""What the server sends at the start of a round."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import randomness


def build_weights_and_round(
  weights_type: tff.Type, seed: int
) -> tff.learning.templates.DistributionProcess:
  """Broadcasts the weights with the round number and the run's seed.

  The seed has to reach *inside* clients for their randomness to depend on it.

  Args:
    weights_type: The unplaced type of the global model weights.
    seed: The run's seed, in [0, 2**31).

  Returns:
    A `tff.learning.templates.DistributionProcess` whose result is
    `<weights=W, round=int32, seed=int32>@CLIENTS`, and whose state holds the
    round number (rounds before this one) and the seed.
  """
  randomness.check_seed(seed)

  @tff.tensorflow.computation
  def initial_state():
    return collections.OrderedDict(
      round=tf.constant(0, tf.int32), seed=tf.constant(seed, tf.int32)
    )

  @tff.tensorflow.computation(initial_state.type_signature.result)
  def advance(state):
    return collections.OrderedDict(round=state['round'] + 1, seed=state['seed'])

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial_state, tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(weights_type, tff.SERVER),
  )
  def distribute(state, weights):
    sent = tff.federated_zip(
      collections.OrderedDict(
        weights=weights, round=state['round'], seed=state['seed']
      )
    )
    return tff.templates.MeasuredProcessOutput(
      state=tff.federated_map(advance, state),
      result=tff.federated_broadcast(sent),
      measurements=tff.federated_value((), tff.SERVER),
    )

  return tff.learning.templates.DistributionProcess(initialize, distribute)
