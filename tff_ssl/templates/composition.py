"""The parts of a round become a `tff.learning.templates.LearningProcess`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators, randomness
from tff_ssl.models import signatures
from tff_ssl.templates import distributors, stacks

ModelWeights = tff.learning.models.ModelWeights


@dataclasses.dataclass(frozen=True)
class Parts:
  """What a process is made of, for measurements beside its rounds.

  Attributes:
    training: The clients' `LocalTraining`.
    local_update: As `build_client_work` takes it, but always with the delta
      against the weights that the client starts from.
    start_of: From a `ClientTask` to the `ModelWeights` that it starts from.
    data_spec: The `ClientDataSpec`.
    weights_type: Unplaced type of the global weights.
    num_groups: S.
    server: The `ServerTraining`, or `None`.
    server_start: From the global weights to those the server starts from.
  """

  training: Any
  local_update: Callable[[Any], tuple[Any, Any]]
  start_of: Callable[[Any], ModelWeights]
  data_spec: Any
  weights_type: tff.Type
  num_groups: int = 1
  server: Any = None
  server_start: Callable[[Any], ModelWeights] | None = None


class ComposedProcess(tff.learning.templates.LearningProcess):
  """A learning process that knows its parts.

  Attributes:
    parts: `Parts`, or `None` where there is nothing to measure them for.
  """

  def __init__(
    self,
    process,
    parts: Parts | None,
    to_model_weights: Callable[[Any], ModelWeights] | None = None,
  ):
    """Initializes the process.

    Args:
      process: A `tff.learning.templates.LearningProcess`.
      parts: What it is made of.
      to_model_weights: See `compose`.
    """
    super().__init__(
      process.initialize,
      process.next,
      process.get_model_weights,
      _CheckedSetter(process.set_model_weights),
      get_hparams_fn=process.get_hparams,
      set_hparams_fn=process.set_hparams,
    )
    self.parts = parts
    self._to_model_weights = to_model_weights and tf.function(to_model_weights)

  def read_model_weights(self, state) -> ModelWeights:
    """Returns what `get_model_weights` does, computed in this process.

    A call of a TFF computation takes 10 ms, which counts in a simulation that
    wants the weights after each round.

    Args:
      state: The process's state, not a value in a TFF computation.
    """
    weights = state.global_model_weights
    if self._to_model_weights is None:
      return weights
    weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
    return tf.nest.map_structure(np.asarray, self._to_model_weights(weights))


class _CheckedSetter(tff.Computation):
  """`set_model_weights`, which says what is wrong with weights that do not fit.

  TFF's own errors say neither what the value is for nor what to do.
  """

  def __init__(self, setter: tff.Computation):
    self._setter = setter

  @property
  def type_signature(self) -> tff.FunctionType:
    return self._setter.type_signature

  def __call__(self, *args, **kwargs):
    _, name = tff.structure.name_list(self.type_signature.parameter)
    weights = args[1] if len(args) > 1 else kwargs.get(name)
    # Anything else is a value of a computation, whose type TFF knows.
    if isinstance(weights, ModelWeights):
      signatures.check_weights(
        weights,
        tff.types.type_to_tf_tensor_specs(self.type_signature.parameter[1]),
      )
    return self._setter(*args, **kwargs)

  def __hash__(self) -> int:
    return hash(self._setter)


def initial_weights_computation(model, seed: int) -> tff.Computation:
  """Returns `( -> ModelWeights)` with the model's weights for `seed`."""
  randomness.check_seed(seed)
  weights = model.initial_weights(seed)

  @tff.tensorflow.computation
  def initial_weights():
    return tf.nest.map_structure(tf.constant, weights)

  return initial_weights


def stack_computation(weights: tff.Computation, size: int) -> tff.Computation:
  """Returns a computation that gives `size` copies, stacked, of `weights`."""

  @tff.tensorflow.computation
  def stacked():
    return stacks.tile(weights(), size)

  return stacked


def compose(
  initial_weights: tff.Computation,
  *,
  seed: int,
  distributor: tff.learning.templates.DistributionProcess | None = None,
  client_work: tff.learning.templates.ClientWorkProcess,
  aggregator: tff.templates.AggregationProcess,
  finalizer: tff.learning.templates.FinalizerProcess,
  to_model_weights: Callable | None = None,
  from_model_weights: Callable | None = None,
  parts: Parts | None = None,
  replaces_statistics: bool = False,
) -> tff.learning.templates.LearningProcess:
  """Composes a learning process out of its four parts.

  Args:
    initial_weights: `( -> W)`, the initial global weights.
    seed: The run's seed, which the default distributor sends.
    distributor: Sends the weights to clients; by default with round and seed.
    client_work: What clients do.
    aggregator: How their results meet.
    finalizer: What the server makes of it.
    to_model_weights: TensorFlow function from the global weights W to the one
      model that is evaluated, where they differ.
    from_model_weights: The converse, from one model and the W before to W.
    parts: What measurements need; without, the process cannot be measured.
    replaces_statistics: Whether the finalizer puts non-trainable weights of its
      own in the place of the aggregated ones.

  Returns:
    A `ComposedProcess`.

  Raises:
    ValueError: If the aggregator would add noise to moving statistics.
  """
  if not replaces_statistics:
    _check_noise(aggregator, initial_weights.type_signature.result)
  process = tff.learning.templates.compose_learning_process(
    initial_weights,
    distributor
    or distributors.build_weights_and_round(
      initial_weights.type_signature.result, seed
    ),
    client_work,
    aggregator,
    finalizer,
  )
  if to_model_weights is not None:
    process = _with_model_weights(process, to_model_weights, from_model_weights)
  return ComposedProcess(process, parts, to_model_weights)


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


def _with_model_weights(process, to_model_weights, from_model_weights):
  """Returns the process with one model in place of its global weights."""
  state_type = process.initialize.type_signature.result.member

  @tff.tensorflow.computation(state_type)
  def get_model_weights(state):
    return to_model_weights(state.global_model_weights)

  @tff.tensorflow.computation(
    state_type, get_model_weights.type_signature.result
  )
  def set_model_weights(state, weights):
    return state._replace(
      global_model_weights=from_model_weights(
        weights, state.global_model_weights
      )
    )

  return tff.learning.templates.LearningProcess(
    process.initialize,
    process.next,
    get_model_weights,
    set_model_weights,
    get_hparams_fn=process.get_hparams,
    set_hparams_fn=process.set_hparams,
  )
