"""How the server applies the aggregate to the weights."""

import collections
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat, protocols
from tff_ssl.templates import faults

ModelWeights: TypeAlias = tff.learning.models.ModelWeights
FinalizerProcess: TypeAlias = tff.learning.templates.FinalizerProcess
State = collections.OrderedDict[str, Any]

# Where a finalizer around another one keeps the other's state.
_INNER = 'inner'


class StatisticsReplacingProcess(FinalizerProcess):
  """A finalizer that replaces all aggregated non-trainable weights.

  It puts moving statistics of its own in their place.
  """


def build_finalizer(
  initial_state: Callable[[], State],
  update: Callable[[State, Any, Any], tuple[State, Any, Any]],
  *,
  weights_type: compat.Type,
  aggregate_type: compat.Type,
  optimizer: Any = None,
  process_class: type[FinalizerProcess] = FinalizerProcess,
) -> FinalizerProcess:
  """Makes a finalizer process out of two TensorFlow functions.

  Args:
    initial_state: Returns the state, an ordered dict.
    update: `(state, weights, aggregate) -> (state, weights, measurements)`.
    weights_type: Unplaced type of the global model weights.
    aggregate_type: Unplaced type of the aggregator's result.
    optimizer: If given, its `get_hparams` and `set_hparams` are for the
      hyperparameters in `state['optimizer']`.
    process_class: The class of the result.
  """
  initial = tff.tensorflow.computation(initial_state)
  state_type = initial.type_signature.result
  apply = tff.tensorflow.computation(
    update, (state_type, weights_type, aggregate_type)
  )

  @compat.federated_computation
  def initialize():
    return compat.federated_eval(initial, compat.SERVER)

  @compat.federated_computation(
    compat.FederatedType(state_type, compat.SERVER),
    compat.FederatedType(weights_type, compat.SERVER),
    compat.FederatedType(aggregate_type, compat.SERVER),
  )
  def next_fn(state, weights, aggregate):
    state, weights, measurements = compat.federated_map(
      apply, (state, weights, aggregate)
    )
    return tff.templates.MeasuredProcessOutput(state, weights, measurements)

  if optimizer is None:
    return process_class(initialize, next_fn)
  return _with_hparams(
    initialize, next_fn, optimizer, 'optimizer', process_class
  )


def _with_hparams(
  initialize, next_fn, owner, field: str, process_class
) -> FinalizerProcess:
  """Returns the process whose hyperparameters are in a field of its state."""
  state_type = initialize.type_signature.result.member

  @tff.tensorflow.computation(state_type)
  def get_hparams(state):
    return owner.get_hparams(state[field])

  @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
  def set_hparams(state, hparams):
    state[field] = owner.set_hparams(state[field], hparams)
    return state

  return process_class(
    initialize,
    next_fn,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )


def wrap_finalizer(
  finalizer: FinalizerProcess,
  initial_state: Callable[[], State],
  *,
  before: Callable[[State, Any, Any], tuple[State, Any, Any]] | None = None,
  after: Callable[[State, Any, Any], tuple[State, Any]] | None = None,
  weights_type: compat.Type | None = None,
) -> FinalizerProcess:
  """Calls TensorFlow functions before and after a finalizer.

  Args:
    finalizer: The inner one.
    initial_state: Returns what is kept beside the inner one's state, an ordered
      dict.
    before: `(kept, weights, aggregate) -> (kept, weights, aggregate)`; the last
      two are for the inner one.
    after: `(kept, weights, new) -> (kept, weights)`, of the weights before the
      round and those that the inner one has made.
    weights_type: Unplaced type of the global weights; by default the inner
      one's.

  Returns:
    A finalizer of the same class, with the same hyperparameters and
    measurements. Its state is what is kept, with the inner one's in front.
  """
  inner_type, inner_weights_type, aggregate_type = (
    part.member
    for _, part in compat.iter_elements(finalizer.next.type_signature.parameter)
  )
  if weights_type is None:
    weights_type = inner_weights_type
  initial = tff.tensorflow.computation(initial_state)
  kept_type = initial.type_signature.result
  if before is not None:
    before = tff.tensorflow.computation(
      before, (kept_type, weights_type, aggregate_type)
    )
  if after is not None:
    after = tff.tensorflow.computation(
      after, (kept_type, weights_type, inner_weights_type)
    )
  names = [name for name, _ in compat.iter_elements(kept_type)]

  # The state is flat, so that a finalizer around this one, and whoever reads
  # states, finds each field by its name.
  def joined(inner, kept):
    fields = [(_INNER, inner), *((name, kept[name]) for name in names)]
    return compat.federated_zip(collections.OrderedDict(fields))

  @compat.federated_computation
  def initialize():
    return joined(
      finalizer.initialize(), compat.federated_eval(initial, compat.SERVER)
    )

  @compat.federated_computation(
    initialize.type_signature.result,
    compat.FederatedType(weights_type, compat.SERVER),
    compat.FederatedType(aggregate_type, compat.SERVER),
  )
  def next_fn(state, weights, aggregate):
    kept = compat.federated_zip(
      collections.OrderedDict((name, state[name]) for name in names)
    )
    present = weights
    if before is not None:
      kept, present, aggregate = compat.federated_map(
        before, (kept, weights, aggregate)
      )
    output = finalizer.next(state[_INNER], present, aggregate)
    new = output.result
    if after is not None:
      kept, new = compat.federated_map(after, (kept, weights, new))
    return tff.templates.MeasuredProcessOutput(
      joined(output.state, kept), new, output.measurements
    )

  return _with_hparams(initialize, next_fn, finalizer, _INNER, type(finalizer))


def innermost(state: Any) -> Any:
  """Returns the state, or its type, of the finalizer that none is inside of."""
  names = state if isinstance(state, Mapping) else dir(state)
  return innermost(state[_INNER]) if _INNER in names else state


def build_no_server_training(
  combine: Callable[[Any, Any], Any], **types: compat.Type
) -> FinalizerProcess:
  """Joins the weights with the clients' results; for servers without data.

  `combine` is a TensorFlow function of weights and aggregate to weights; the
  types are those of `build_finalizer`. A result that is not finite leaves the
  weights as they are, and counts in `update_non_finite`, the only measurement.
  """

  def update(state, weights, aggregate):
    combined = combine(weights, aggregate)
    finite = faults.all_finite(combined)
    weights = faults.choose(finite, combined, weights)
    return state, weights, non_finite(finite)

  return build_finalizer(lambda: collections.OrderedDict(), update, **types)


def build_apply_mean_delta(
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  *,
  weights_type: compat.Type,
  aggregate_type: compat.Type,
  first_stage_rounds: int | None = None,
) -> FinalizerProcess:
  """Applies the mean model delta with a server optimizer, as FedAvg/FedOpt do.

  Args:
    server_optimizer: By default SGD with learning rate 1: plain FedAvg.
    weights_type: Unplaced type of the `ModelWeights`.
    aggregate_type: Unplaced type of the mean delta, which is that of weights.
    first_stage_rounds: If given, the optimizer starts afresh after so many
      rounds, with the hyperparameters that it has; the state counts rounds.
  """
  server_optimizer = server_optimizer or tff.learning.optimizers.build_sgdm(1.0)
  trainable_spec = compat.type_to_tf_tensor_specs(weights_type['trainable'])
  has_stages = first_stage_rounds is not None

  def initial_state():
    state = collections.OrderedDict(
      optimizer=server_optimizer.initialize(trainable_spec)
    )
    if has_stages:
      state['round'] = tf.constant(0, tf.int32)
    return state

  def update(state, weights, delta):
    old = state['optimizer']
    if has_stages:
      fresh = server_optimizer.set_hparams(
        server_optimizer.initialize(trainable_spec),
        server_optimizer.get_hparams(old),
      )
      is_next = tf.equal(state['round'], first_stage_rounds)
      old = faults.choose(is_next, fresh, old)
    new, weights, measurements = apply_mean_delta(
      server_optimizer, old, weights, delta
    )
    state = collections.OrderedDict(state, optimizer=new)
    if has_stages:
      state['round'] += 1
    return state, weights, measurements

  return build_finalizer(
    initial_state,
    update,
    weights_type=weights_type,
    aggregate_type=aggregate_type,
    optimizer=server_optimizer,
  )


def apply_mean_delta(
  server_optimizer: tff.learning.optimizers.Optimizer,
  optimizer_state: protocols.OptimizerState,
  weights: ModelWeights,
  delta: ModelWeights,
) -> tuple[protocols.OptimizerState, ModelWeights, State]:
  """Returns the new optimizer state, the new weights and the measurements.

  The negative delta of the trainable weights is the optimizer's gradient; the
  delta of the non-trainable ones (moving statistics) is added as it is. A delta
  that is not finite leaves weights and optimizer as they are, and counts in
  `update_non_finite`.
  """
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
  return new_state, weights, non_finite(finite)


def non_finite(finite: tf.Tensor) -> State:
  """Returns the measurement of updates that were left out."""
  return collections.OrderedDict(update_non_finite=tf.cast(~finite, tf.int32))
