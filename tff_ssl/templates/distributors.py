"""What the server sends at the start of a round."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat, randomness


def message_type(weights_type: compat.Type) -> compat.Type:
  """Returns the unplaced type of what a client is sent."""
  return compat.to_type(
    collections.OrderedDict(weights=weights_type, round=np.int32, seed=np.int32)
  )


def build(
  weights_type: compat.Type,
  seed: int,
  of_weights: tff.learning.templates.DistributionProcess | None = None,
) -> tff.learning.templates.DistributionProcess:
  """Sends the weights with the round number and the run's seed.

  The seed has to reach *inside* clients for their randomness to depend on it.

  Args:
    weights_type: The unplaced type of the global model weights.
    seed: The run's seed, in [0, 2**31).
    of_weights: Sends the weights, as
      `tff.learning.templates.build_broadcast_process` does; by default they are
      broadcast with the other two. One that sends all three is returned as it
      is.

  Returns:
    A process whose result is `<weights=W, round=int32, seed=int32>@CLIENTS`,
    and whose state holds the round number (rounds before this one) and the
    seed.

  Raises:
    TypeError: If `of_weights` sends anything else.
  """
  randomness.check_seed(seed)

  @tff.tensorflow.computation
  def begin():
    return collections.OrderedDict(
      round=tf.constant(0, tf.int32), seed=tf.constant(seed, tf.int32)
    )

  clock_type = begin.type_signature.result

  @tff.tensorflow.computation(clock_type)
  def advance(clock):
    return collections.OrderedDict(round=clock['round'] + 1, seed=clock['seed'])

  if of_weights is not None:
    sent = of_weights.next.type_signature.result.result
    wanted = compat.FederatedType(message_type(weights_type), compat.CLIENTS)
    if wanted.is_assignable_from(sent):
      return of_weights
    _check_sends(sent, weights_type)

  @compat.federated_computation
  def initialize():
    clock = compat.federated_eval(begin, compat.SERVER)
    if of_weights is None:
      return clock
    return compat.federated_zip(
      collections.OrderedDict(weights=of_weights.initialize(), clock=clock)
    )

  @compat.federated_computation(
    initialize.type_signature.result,
    compat.FederatedType(weights_type, compat.SERVER),
  )
  def distribute(state, weights):
    if of_weights is None:
      sent = _message(weights, state)
      return tff.templates.MeasuredProcessOutput(
        state=compat.federated_map(advance, state),
        result=compat.federated_broadcast(sent),
        measurements=compat.federated_value((), compat.SERVER),
      )
    sent = of_weights.next(state['weights'], weights)
    clock = compat.federated_broadcast(state['clock'])
    next_state = collections.OrderedDict(
      weights=sent.state, clock=compat.federated_map(advance, state['clock'])
    )
    return tff.templates.MeasuredProcessOutput(
      state=compat.federated_zip(next_state),
      result=_message(sent.result, clock),
      measurements=sent.measurements,
    )

  return tff.learning.templates.DistributionProcess(initialize, distribute)


def _message(weights, clock):
  return compat.federated_zip(
    collections.OrderedDict(
      weights=weights, round=clock['round'], seed=clock['seed']
    )
  )


def _check_sends(sent, weights_type) -> None:
  """Raises `TypeError` unless a distributor of weights sends them."""
  if not (
    isinstance(sent, compat.FederatedType)
    and weights_type.is_assignable_from(sent.member)
  ):
    raise TypeError(
      f'model_distributor sends {sent}, and clients need the weights '
      f'{weights_type}: build it for this type (ModelWeights of two lists).'
    )
