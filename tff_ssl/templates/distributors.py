"""What the server sends at the start of a round."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import randomness


@tff.tensorflow.computation(
  collections.OrderedDict(round=np.int32, seed=np.int32)
)
def _advance(state):
  return collections.OrderedDict(round=state['round'] + 1, seed=state['seed'])


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
      state=tff.federated_map(_advance, state),
      result=tff.federated_broadcast(sent),
      measurements=tff.federated_value((), tff.SERVER),
    )

  return tff.learning.templates.DistributionProcess(initialize, distribute)


def of_weights(
  distributor: tff.learning.templates.DistributionProcess,
  weights_type: tff.Type,
  seed: int,
) -> tff.learning.templates.DistributionProcess:
  """Returns a distributor that sends the round and the seed, too.

  Args:
    distributor: Sends weights, as
      `tff.learning.templates.build_broadcast_process` does; or already sends
      what `build_weights_and_round` sends, and is returned as it is.
    weights_type: The unplaced type of the global model weights.
    seed: The run's seed.

  Raises:
    TypeError: If it sends anything else.
  """
  own = build_weights_and_round(weights_type, seed)
  wanted = own.next.type_signature.result.result
  sent = distributor.next.type_signature.result.result
  if wanted.is_assignable_from(sent):
    return distributor
  if not (
    isinstance(sent, tff.FederatedType)
    and weights_type.is_assignable_from(sent.member)
  ):
    raise TypeError(
      f'model_distributor sends {sent}, and clients need the weights '
      f'{weights_type}: build it for this type (ModelWeights of two lists).'
    )

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        stock=distributor.initialize(), own=own.initialize()
      )
    )

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(weights_type, tff.SERVER),
  )
  def distribute(state, weights):
    of_stock = distributor.next(state['stock'], weights)
    clocks = tff.federated_broadcast(state['own'])
    sent = collections.OrderedDict(
      weights=of_stock.result, round=clocks['round'], seed=clocks['seed']
    )
    next_state = collections.OrderedDict(
      stock=of_stock.state, own=tff.federated_map(_advance, state['own'])
    )
    return tff.templates.MeasuredProcessOutput(
      state=tff.federated_zip(next_state),
      result=tff.federated_zip(sent),
      measurements=of_stock.measurements,
    )

  return tff.learning.templates.DistributionProcess(initialize, distribute)
