"""The parts of a round become a `tff.learning.templates.LearningProcess`.

`compose` is the one way to do this. A page says what clients do
(`client_work.build_client_work`), how their results meet (an aggregator) and
what the server makes of them (a finalizer). `averaging` and `groups` have these
parts ready for most pages; one that needs something special puts its own in
their place.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators, compat, randomness, stacks
from tff_ssl.models import functional
from tff_ssl.plans import Wiring
from tff_ssl.templates import (
  client_data,
  client_task,
  client_work,
  finalizers,
  local_training,
  moving_average,
  server_training,
)

ModelWeights: TypeAlias = tff.learning.models.ModelWeights


@dataclasses.dataclass(frozen=True)
class ModelView:
  """How the one model that is evaluated lies in the global weights.

  In TensorFlow, `take` gives the model's weights of the global ones, and `put`
  new global weights of the model's and the present global ones.
  """

  take: Callable[[Any], ModelWeights]
  put: Callable[[ModelWeights, Any], Any]


@dataclasses.dataclass(frozen=True)
class Measurable:
  """What a process is made of, for measurements beside its rounds.

  Attributes:
    training: That of the clients.
    local_update: With the delta against what the client starts from.
    start_of: Gives what a client starts from.
    server: How the server trains, if it does.
    server_start: From the global weights to those that the server starts from.
  """

  training: local_training.LocalTraining
  local_update: client_task.LocalWork
  start_of: Callable[[client_task.ClientTask], ModelWeights]
  data_spec: client_data.ClientDataSpec
  num_groups: int = 1
  server: server_training.ServerTraining | None = None
  server_start: Callable[[Any], ModelWeights] | None = None


class ComposedProcess(tff.learning.templates.LearningProcess):
  """A learning process that knows what it is made of.

  Attributes:
    weights_type: Unplaced type of the global weights.
    measurable: What could be measured, or `None`.
  """

  def __init__(
    self,
    process: tff.learning.templates.LearningProcess,
    weights_type: compat.Type,
    *,
    view: ModelView | None,
    is_averaged: bool,
    measurable: Measurable | None,
  ):
    """Initializes the process from one whose model weights are global ones.

    Where `is_averaged`, the finalizer's state holds what is evaluated
    (`moving_average.keep_in_state`); `compose` explains the rest.
    """
    getter, setter = process.get_model_weights, process.set_model_weights
    if view is not None or is_averaged:
      getter, setter = _build_evaluated(process, view, is_averaged)
    super().__init__(
      process.initialize,
      process.next,
      getter,
      _CheckedSetter(setter),
      get_hparams_fn=process.get_hparams,
      set_hparams_fn=process.set_hparams,
    )
    self.weights_type = weights_type
    self.measurable = measurable
    self._take_model = (
      None if view is None else tf.function(view.take, autograph=False)
    )
    self._is_averaged = is_averaged

  def read_model_weights(
    self, state: tff.learning.templates.LearningAlgorithmState
  ) -> ModelWeights:
    """Returns what `get_model_weights` does, computed in this process.

    A call of a TFF computation takes 10 ms, which counts in a simulation.
    """
    if self._is_averaged:
      return state.finalizer[moving_average.AVERAGE]
    weights = state.global_model_weights
    if self._take_model is None:
      return weights
    weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
    return tf.nest.map_structure(np.asarray, self._take_model(weights))


def _build_evaluated(process, view, is_averaged):
  """Returns the getter and the setter of the model that is evaluated."""
  state_type = process.initialize.type_signature.result.member

  @tff.tensorflow.computation(state_type)
  def get_model_weights(state):
    if is_averaged:
      return state.finalizer[moving_average.AVERAGE]
    return view.take(state.global_model_weights)

  @tff.tensorflow.computation(
    state_type, get_model_weights.type_signature.result
  )
  def set_model_weights(state, weights):
    if is_averaged:
      state.finalizer[moving_average.AVERAGE] = weights
    if view is not None:
      weights = view.put(weights, state.global_model_weights)
    return state._replace(global_model_weights=weights)

  return get_model_weights, set_model_weights


class _CheckedSetter(compat.Computation):
  """`set_model_weights`, which says what is wrong with weights that do not fit.

  TFF's own errors say neither what the value is for nor what to do.
  """

  def __init__(self, setter: compat.Computation):
    self._setter = setter

  @property
  def type_signature(self) -> compat.FunctionType:
    return self._setter.type_signature

  def __call__(self, *args, **kwargs):
    _, name = compat.name_list(self.type_signature.parameter)
    weights = args[1] if len(args) > 1 else kwargs.get(name)
    # Anything else is a value of a computation, whose type TFF knows.
    if isinstance(weights, tff.learning.models.ModelWeights):
      functional.check_weights(
        weights,
        compat.type_to_tf_tensor_specs(self.type_signature.parameter[1]),
      )
    return self._setter(*args, **kwargs)

  def __hash__(self) -> int:
    return hash(self._setter)


def initial_weights(
  model: functional.FunctionalModel, seed: int
) -> compat.Computation:
  """Returns the computation of a model's initial weights, drawn by a seed."""
  randomness.check_seed(seed)
  weights = model.initial_weights(seed)

  @tff.tensorflow.computation
  def initial():
    return tf.nest.map_structure(tf.constant, weights)

  return initial


def stacked(weights: compat.Computation, size: int) -> compat.Computation:
  """Returns a computation that gives `size` copies, stacked, of `weights`."""

  @tff.tensorflow.computation
  def stack():
    return stacks.tile(weights(), size)

  return stack


def _sends_all(distributor, weights_type) -> bool:
  """Returns whether it sends round and seed, too; `TypeError` if no weights."""
  sent = distributor.next.type_signature.result.result
  if isinstance(sent, compat.FederatedType):
    if client_task.message_type(weights_type).is_assignable_from(sent.member):
      return True
    if weights_type.is_assignable_from(sent.member):
      return False
  raise TypeError(
    f'model_distributor sends {sent}, and clients need the weights '
    f'{weights_type}: build it for this type (ModelWeights of two lists).'
  )


def build_distributor(
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
  """
  randomness.check_seed(seed)
  if of_weights is not None and _sends_all(of_weights, weights_type):
    return of_weights

  def clock_of(round_num, seed):
    return collections.OrderedDict(round=round_num, seed=seed)

  begin = tff.tensorflow.computation(
    lambda: clock_of(tf.constant(0, tf.int32), tf.constant(seed, tf.int32))
  )
  advance = tff.tensorflow.computation(
    lambda clock: clock_of(clock['round'] + 1, clock['seed']),
    begin.type_signature.result,
  )

  def message(weights, clock):
    return compat.federated_zip(
      collections.OrderedDict(
        weights=weights, round=clock['round'], seed=clock['seed']
      )
    )

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
      return tff.templates.MeasuredProcessOutput(
        state=compat.federated_map(advance, state),
        result=compat.federated_broadcast(message(weights, state)),
        measurements=compat.federated_value((), compat.SERVER),
      )
    sent = of_weights.next(state['weights'], weights)
    clock = compat.federated_broadcast(state['clock'])
    next_state = collections.OrderedDict(
      weights=sent.state, clock=compat.federated_map(advance, state['clock'])
    )
    return tff.templates.MeasuredProcessOutput(
      state=compat.federated_zip(next_state),
      result=message(sent.result, clock),
      measurements=sent.measurements,
    )

  return tff.learning.templates.DistributionProcess(initialize, distribute)


def compose(
  work: client_work.ClientWork,
  *,
  create_aggregator: Callable[
    [compat.Type, compat.Type], tff.templates.AggregationProcess
  ],
  build_finalizer: Callable[..., tff.learning.templates.FinalizerProcess],
  wiring: Wiring,
  idle_rounds: int = 0,
  view: ModelView | None = None,
  measurable: Measurable | None = None,
) -> ComposedProcess:
  """Composes a learning process out of the parts of a round.

  Args:
    work: What clients do, from which initial global weights, of the type W.
    create_aggregator: How their results meet: takes the types of a client's
      update and of its weight, as the `create` of a weighted factory does.
    build_finalizer: What the server makes of it: called with `weights_type` and
      `aggregate_type`, the unplaced types of W and of the aggregator's result.
    wiring: How messages are sent, the seed, and the average that is evaluated.
      Its `model_aggregator` is for `create_aggregator` to use.
    idle_rounds: First rounds in which every client sends zeros; the aggregator
      rests in them.
    view: Where the model that is evaluated lies in the global weights; by
      default it is all of them.
    measurable: What the process is made of, if it is to be measured.

  An aggregator that would add noise to moving statistics is a `ValueError`, and
  so is one that hides or bounds what clients send while memories go round it.
  """
  weights_type = work.initial.type_signature.result
  sent_back = work.next.type_signature.result.result.member
  aggregator = aggregators.rest_without_clients(
    create_aggregator(sent_back.update, sent_back.update_weight),
    first_rounds=idle_rounds,
    min_clients=wiring.min_group_size,
  )
  # The aggregator protects the models alone; memories are summed beside it.
  _check_memories(aggregator, work.in_the_clear)
  finalizer = build_finalizer(
    weights_type=weights_type,
    aggregate_type=aggregator.next.type_signature.result.result.member,
  )
  if not isinstance(finalizer, finalizers.StatisticsReplacingProcess):
    _check_noise(aggregator, weights_type)
  if wiring.ema_decay:
    finalizer = moving_average.keep_in_state(
      finalizer,
      wiring.ema_decay,
      initial=work.initial,
      model_of=view.take if view is not None else lambda weights: weights,
    )
  process = tff.learning.templates.compose_learning_process(
    work.initial,
    build_distributor(weights_type, wiring.seed, wiring.model_distributor),
    work,
    aggregator,
    finalizer,
  )
  return ComposedProcess(
    process,
    weights_type,
    view=view,
    is_averaged=bool(wiring.ema_decay),
    measurable=measurable,
  )


def _check_memories(aggregator, shown: str) -> None:
  """Raises `ValueError` where something goes round a protecting aggregator."""
  if not shown:
    return
  protection = (
    'differential privacy' if aggregators.is_private(aggregator) else ''
  )
  if aggregators.has_secure_sums(aggregator.next):
    protection = 'secure sums'
  if protection:
    raise ValueError(
      f'model_aggregator has {protection}, and {shown} would be summed in the '
      'clear beside it: take an aggregator without, or a process whose clients '
      'send nothing else, such as build_fed_avg.'
    )
  if aggregators.collects_values(aggregator):
    raise ValueError(
      'model_aggregator is a median or the like, which no single client moves '
      f'far, and {shown} would go round it, where one client can: take another '
      'aggregator, or a process whose clients send nothing else, such as '
      'build_fed_avg.'
    )


def _check_noise(aggregator, weights_type) -> None:
  """Raises `ValueError` where noise would reach moving statistics."""
  if len(weights_type['non_trainable']) and aggregators.is_private(aggregator):
    raise ValueError(
      'model_aggregator adds noise for differential privacy, and model has '
      'non-trainable weights, such as the moving statistics of batch '
      'normalisation: noise makes a moving variance negative, and predictions '
      'NaN. Use a model without moving statistics (group normalisation in the '
      'place of batch normalisation), or an aggregator without noise.'
    )
