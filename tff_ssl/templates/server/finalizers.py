"""How the server applies the aggregate to the weights."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols
from tff_ssl.templates import faults

ModelWeights = tff.learning.models.ModelWeights
State = collections.OrderedDict[str, Any]


class HasHparams(Protocol):
  """What has hyperparameters in a state, such as an optimizer."""

  def get_hparams(self, state: protocols.OptimizerState) -> protocols.Hparams:
    """Returns the hyperparameters in a state."""

  def set_hparams(
    self, state: protocols.OptimizerState, hparams: protocols.Hparams
  ) -> protocols.OptimizerState:
    """Returns the state with other hyperparameters."""


class StatisticsReplacingProcess(tff.learning.templates.FinalizerProcess):
  """A finalizer that replaces all aggregated non-trainable weights.

  It puts moving statistics of its own in their place.
  """


# Where a finalizer around another one keeps the other's state.
INNER = 'inner'


def types_of(
  finalizer: tff.learning.templates.FinalizerProcess,
) -> tuple[tff.Type, tff.Type, tff.Type]:
  """Returns the unplaced types of a finalizer's state, weights and aggregate.

  Args:
    finalizer: The process.
  """
  parameter = finalizer.next.type_signature.parameter
  return tuple(
    part.member for _, part in tff.structure.iter_elements(parameter)
  )


def around(
  finalizer: tff.learning.templates.FinalizerProcess,
  initialize: tff.Computation,
  next_fn: tff.Computation,
  *,
  field: str = INNER,
  process_class: type[tff.learning.templates.FinalizerProcess] | None = None,
) -> tff.learning.templates.FinalizerProcess:
  """Makes a finalizer that calls another one, with its hyperparameters.

  Args:
    finalizer: The other one.
    initialize: Returns the state, an ordered dict at the server.
    next_fn: As of any finalizer.
    field: Where the state holds the other one's.
    process_class: The class of the result; by default that of the other one.
  """
  state_type = initialize.type_signature.result.member

  @tff.tensorflow.computation(state_type)
  def get_hparams(state):
    return finalizer.get_hparams(state[field])

  @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
  def set_hparams(state, hparams):
    state[field] = finalizer.set_hparams(state[field], hparams)
    return state

  return (process_class or type(finalizer))(
    initialize,
    next_fn,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )


def innermost(state: Any) -> Any:
  """Returns the state of the finalizer that none is inside of.

  Args:
    state: Of a finalizer, an ordered dict; or its type.
  """
  names = state if isinstance(state, Mapping) else dir(state)
  return innermost(state[INNER]) if INNER in names else state


def build_finalizer(
  initial_state: Callable[[], State],
  update: Callable[[State, Any, Any], tuple[State, Any, Any]],
  *,
  weights_type: tff.Type,
  aggregate_type: tff.Type,
  optimizer: HasHparams | None = None,
) -> tff.learning.templates.FinalizerProcess:
  """Makes a finalizer process out of two TensorFlow functions.

  Args:
    initial_state: Returns the state, an ordered dict.
    update: `(state, weights, aggregate) -> (state, weights, measurements)`.
    weights_type: Unplaced type of the global model weights.
    aggregate_type: Unplaced type of the aggregator's result.
    optimizer: If given, it gets and sets the hyperparameters in
      `state['optimizer']`.

  Returns:
    A `tff.learning.templates.FinalizerProcess`.
  """
  initial = tff.tensorflow.computation(initial_state)
  state_type = initial.type_signature.result
  apply = tff.tensorflow.computation(
    update, (state_type, weights_type, aggregate_type)
  )

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial, tff.SERVER)

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(aggregate_type, tff.SERVER),
  )
  def next_fn(state, weights, aggregate):
    state, weights, measurements = tff.federated_map(
      apply, (state, weights, aggregate)
    )
    return tff.templates.MeasuredProcessOutput(state, weights, measurements)

  if optimizer is None:
    return tff.learning.templates.FinalizerProcess(initialize, next_fn)

  @tff.tensorflow.computation(state_type)
  def get_hparams(state):
    return optimizer.get_hparams(state['optimizer'])

  @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
  def set_hparams(state, hparams):
    state['optimizer'] = optimizer.set_hparams(state['optimizer'], hparams)
    return state

  return tff.learning.templates.FinalizerProcess(
    initialize,
    next_fn,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )


def build_no_server_training(
  combine: Callable[[Any, Any], Any],
  *,
  weights_type: tff.Type,
  aggregate_type: tff.Type,
) -> tff.learning.templates.FinalizerProcess:
  """Joins the weights with the clients' results; for servers without data.

  A result that is not finite leaves the weights as they are, and counts in
  `update_non_finite`.

  Args:
    combine: `(weights, aggregate) -> weights`, in TensorFlow.
    weights_type: Unplaced type of the global model weights.
    aggregate_type: Unplaced type of the aggregator's result.

  Returns:
    A `tff.learning.templates.FinalizerProcess` without hyperparameters, whose
    measurements are `<update_non_finite=int32>`.
  """

  def update(state, weights, aggregate):
    combined = combine(weights, aggregate)
    finite = faults.all_finite(combined)
    measurements = collections.OrderedDict(
      update_non_finite=tf.cast(~finite, tf.int32)
    )
    return state, faults.choose(finite, combined, weights), measurements

  def no_state():
    return collections.OrderedDict()

  return build_finalizer(
    no_state,
    update,
    weights_type=weights_type,
    aggregate_type=aggregate_type,
  )


def build_apply_mean_delta(
  server_optimizer: tff.learning.optimizers.Optimizer,
  weights_type: tff.Type,
  trainable_spec: Sequence[tf.TensorSpec],
) -> tff.learning.templates.FinalizerProcess:
  """Applies the mean model delta with a server optimizer, as FedAvg/FedOpt do.

  The negative delta of the trainable weights is the optimizer's gradient; the
  delta of the non-trainable ones (moving statistics) is added as it is. An
  aggregate that is not finite leaves weights and optimizer as they are, and
  counts in `update_non_finite`.

  Args:
    server_optimizer: SGD with learning rate 1 is plain FedAvg.
    weights_type: Unplaced type of the `ModelWeights`.
    trainable_spec: `tf.TensorSpec`s of the trainable weights.

  Returns:
    A `tff.learning.templates.FinalizerProcess`.
  """

  def initial_state():
    return collections.OrderedDict(
      optimizer=server_optimizer.initialize(trainable_spec)
    )

  def update(state, weights, delta):
    optimizer_state, weights, measurements = _apply_mean_delta(
      server_optimizer, state['optimizer'], weights, delta
    )
    state = collections.OrderedDict(optimizer=optimizer_state)
    return state, weights, measurements

  return build_finalizer(
    initial_state,
    update,
    weights_type=weights_type,
    aggregate_type=weights_type,
    optimizer=server_optimizer,
  )


def build_apply_mean_delta_in_stages(
  server_optimizer: tff.learning.optimizers.Optimizer,
  weights_type: tff.Type,
  trainable_spec: Sequence[tf.TensorSpec],
  first_stage_rounds: int,
) -> tff.learning.templates.FinalizerProcess:
  """Does as `build_apply_mean_delta`, for a training of two stages.

  With the second stage the optimizer starts afresh, with the hyperparameters
  that it has.

  Args:
    server_optimizer: As in `build_apply_mean_delta`.
    weights_type: Likewise.
    trainable_spec: Likewise.
    first_stage_rounds: Rounds of the first stage.

  Returns:
    A `tff.learning.templates.FinalizerProcess`, whose state counts rounds.
  """

  def initial_state():
    return collections.OrderedDict(
      optimizer=server_optimizer.initialize(trainable_spec),
      round=tf.constant(0, tf.int32),
    )

  def update(state, weights, delta):
    hparams = server_optimizer.get_hparams(state['optimizer'])
    fresh = server_optimizer.set_hparams(
      server_optimizer.initialize(trainable_spec), hparams
    )
    before = faults.choose(
      tf.equal(state['round'], first_stage_rounds), fresh, state['optimizer']
    )
    optimizer_state, weights, measurements = _apply_mean_delta(
      server_optimizer, before, weights, delta
    )
    state = collections.OrderedDict(
      optimizer=optimizer_state, round=state['round'] + 1
    )
    return state, weights, measurements

  return build_finalizer(
    initial_state,
    update,
    weights_type=weights_type,
    aggregate_type=weights_type,
    optimizer=server_optimizer,
  )


def _apply_mean_delta(server_optimizer, optimizer_state, weights, delta):
  """Returns the new optimizer state, the new weights and the measurements."""
  gradients = tf.nest.map_structure(tf.negative, delta.trainable)
  new_state, trainable = server_optimizer.next(
    optimizer_state, weights.trainable, gradients
  )
  non_trainable = tf.nest.map_structure(
    tf.add, weights.non_trainable, delta.non_trainable
  )
  finite = faults.all_finite(delta)
  new_state, weights = faults.choose(
    finite,
    (new_state, ModelWeights(trainable, non_trainable)),
    (optimizer_state, weights),
  )
  measurements = collections.OrderedDict(
    update_non_finite=tf.cast(~finite, tf.int32)
  )
  return new_state, weights, measurements
