"""A round whose server step is that of FedAvg and FedOpt, whatever clients do.

McMahan et al. (arXiv 1602.05629), Algorithm 1, in the form of Reddi et al.
(arXiv 2003.00295): the mean of the clients' model deltas, weighted by the
examples that they processed, is a gradient for the server optimizer.

`compose` does it all. A page that needs something special calls
`composition.compose` with the parts that stand here and its own beside them.
"""

import functools
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols, shared_settings
from tff_ssl.models import functional
from tff_ssl.plans import Wiring
from tff_ssl.templates import (
  client_data,
  client_task,
  client_work,
  composition,
  local_training,
)
from tff_ssl.templates import memories as memories_lib
from tff_ssl.templates.server import finalizers

Train = Callable[[client_task.ClientTask], local_training.TrainingResult]


def update_from(
  task: client_task.ClientTask,
  result: local_training.TrainingResult,
  client_weighting: str,
) -> client_task.LocalUpdate:
  """Returns a client's update: its delta, and how much it weighs.

  Args:
    task: The `ClientTask`.
    result: What its training gave. The weights are those of the global model.
    client_weighting: 'examples' (processed in the round) or 'uniform'.
  """
  is_uniform = client_weighting == 'uniform'
  return client_task.LocalUpdate(
    client_task.subtract(result.weights, task.weights),
    tf.constant(1.0) if is_uniform else result.num_examples,
    result.metrics,
    tf.constant(False),
    result.optimizer_state,
    result.client_state,
    passes=result.passes,
    shared_change=result.shared_change,
    num_examples=result.num_examples,
  )


def build_local_update(
  train: Train, client_weighting: str
) -> Callable[[client_task.ClientTask], tuple[client_task.LocalUpdate, None]]:
  """Returns the `local_update` of clients that send their deltas.

  Args:
    train: See `compose`.
    client_weighting: See `update_from`.
  """
  return lambda task: (update_from(task, train(task), client_weighting), None)


def weighted_factory(
  model_aggregator: tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
  | None,
  client_weighting: str,
) -> tff.aggregators.WeightedAggregationFactory:
  """Returns the factory of the aggregator, which takes weights.

  Args:
    model_aggregator: By default `tff.aggregators.MeanFactory()`.
    client_weighting: See `update_from`.

  Raises:
    ValueError: If `client_weighting` is unknown, or the aggregator ignores
      weights that it asks for.
  """
  shared_settings.CLIENT_WEIGHTING.check(client_weighting)
  factory = model_aggregator or tff.aggregators.MeanFactory(
    no_nan_division=True
  )
  if not isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    return factory
  if client_weighting != 'uniform':
    raise ValueError(
      'model_aggregator ignores weights (it is unweighted), but '
      f"client_weighting is {client_weighting!r}: use 'uniform'."
    )
  return tff.aggregators.as_weighted_aggregator(factory)


def build_finalizer(
  model: functional.FunctionalModel,
  server_optimizer: tff.learning.optimizers.Optimizer | None,
  *,
  weights_type: tff.Type,
  aggregate_type: tff.Type,
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer that gives the mean delta to a server optimizer.

  Args:
    model: The `FunctionalModel` whose weights are global.
    server_optimizer: By default SGD with learning rate 1: plain FedAvg.
    weights_type: Unplaced type of the global weights.
    aggregate_type: Unplaced type of the mean delta, which is that of weights.
  """
  del aggregate_type
  return finalizers.build_apply_mean_delta(
    server_optimizer or tff.learning.optimizers.build_sgdm(1.0),
    weights_type,
    model.weights_spec.trainable,
  )


def parts_of(
  training: local_training.LocalTraining,
  data_spec: client_data.ClientDataSpec,
  client_weighting: str,
) -> composition.Parts:
  """Returns what is measured of clients that train all of the global model.

  Args:
    training: What clients do.
    data_spec: The type of the client data.
    client_weighting: See `update_from`.
  """
  return composition.Parts(
    training,
    build_local_update(training.run_task, client_weighting),
    lambda task: task.weights,
    data_spec,
  )


def compose(
  train: Train,
  *,
  model: functional.FunctionalModel,
  data_spec: client_data.ClientDataSpec,
  initial_hparams: Callable[[], protocols.Hparams],
  client_weighting: str,
  server_optimizer: tff.learning.optimizers.Optimizer | None,
  wiring: Wiring,
  memories: tuple[memories_lib.Memory, ...] = (),
  view: composition.ModelView | None = None,
) -> composition.ComposedProcess:
  """Composes the learning process.

  Args:
    train: What a client does with its task, such as `LocalTraining.run_task`.
      The result's weights are those of `model`. If momentum stays with the
      slot, `train` goes on from the task's `slot_state`, and the result's
      optimizer state is the next one.
    model: The `FunctionalModel` whose weights are global.
    data_spec: The type of the client data.
    initial_hparams: Returns the client optimizer's hyperparameters.
    client_weighting: See `update_from`.
    server_optimizer: See `build_finalizer`.
    wiring: Its `model_aggregator` is by default `tff.aggregators.MeanFactory`.
    memories: What outlives a round, beside the weights.
    view: See `composition.compose`.

  Returns:
    A process that cannot be measured as yet; see `parts_of`.

  Raises:
    ValueError: If an argument is out of range, or `model_aggregator` would add
      noise to moving statistics.
    TypeError: If model and client data do not fit each other.
  """
  data_spec.check_model(model)
  # Ahead of tracing the clients' work, which takes seconds.
  factory = weighted_factory(wiring.model_aggregator, client_weighting)
  return composition.compose(
    composition.initial_weights(model, wiring.seed),
    client_work.Clients(
      build_local_update(train, client_weighting),
      data_spec,
      initial_hparams,
      memories,
    ),
    create_aggregator=factory.create,
    build_finalizer=functools.partial(build_finalizer, model, server_optimizer),
    wiring=wiring,
    view=view,
  )
