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
  finalizers,
  local_training,
)
from tff_ssl.templates import memories as memories_lib

Train = Callable[[client_task.ClientTask], client_task.TrainingResult]


def update_from(
  task: client_task.ClientTask,
  result: client_task.TrainingResult,
  client_weighting: str,
) -> client_task.LocalUpdate:
  """Returns a client's update from what its training of the model gave.

  It weighs as many 'examples' as were processed in the round, or is 'uniform'.
  """
  is_uniform = client_weighting == 'uniform'
  return client_task.LocalUpdate(
    client_task.subtract(result.weights, task.weights),
    tf.constant(1.0) if is_uniform else result.num_examples,
    result,
  )


# What a page changes of a client's update.
Revise = Callable[[client_task.LocalUpdate], client_task.LocalUpdate]


def build_local_update(
  train: Train,
  client_weighting: str,
  revise: Revise = lambda update: update,
) -> client_task.LocalWork:
  """Returns the local update of clients that send what `train` has changed."""

  def local_update(task):
    return revise(update_from(task, train(task), client_weighting)), None

  return local_update


def weighted_factory(
  model_aggregator: tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
  | None,
  client_weighting: str,
) -> tff.aggregators.WeightedAggregationFactory:
  """Returns the factory of the aggregator, by default a mean, with weights.

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


def measurable(
  training: local_training.LocalTraining,
  data_spec: client_data.ClientDataSpec,
  client_weighting: str,
) -> composition.Measurable:
  """Returns what is measured of clients that train all of the global model."""
  return composition.Measurable(
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
  wiring: Wiring,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  build_finalizer: Callable[..., tff.learning.templates.FinalizerProcess]
  | None = None,
  revise: Revise = lambda update: update,
  memories: tuple[memories_lib.Memory, ...] = (),
  view: composition.ModelView | None = None,
  measured: local_training.LocalTraining | None = None,
  idle_rounds: int = 0,
) -> composition.ComposedProcess:
  """Composes the learning process.

  Args:
    train: What a client does with its task, such as `LocalTraining.run_task`.
      The result's weights are those of `model`. If momentum outlives the round,
      `train` goes on from the task's `optimizer_state`, and the result's is the
      next one.
    model: Whose weights are global.
    data_spec: The type of the client data.
    initial_hparams: Returns the client optimizer's hyperparameters.
    client_weighting: 'examples' or 'uniform'; see `update_from`.
    wiring: Its `model_aggregator` is by default `tff.aggregators.MeanFactory`.
    server_optimizer: By default SGD with learning rate 1: plain FedAvg.
    build_finalizer: In the place of the server optimizer's, where the server
      does more; see `composition.compose`.
    revise: What is changed of a client's update before it is sent.
    memories: What outlives a round, beside the weights.
    view: See `composition.compose`.
    measured: The training of clients that train all of the global model; other
      processes cannot be measured.
    idle_rounds: First rounds in which clients do nothing.

  Raises:
    ValueError: If an argument is out of range, or `model_aggregator` would add
      noise to moving statistics.
    TypeError: If model and client data do not fit each other.
  """
  data_spec.check_model(model)
  # Ahead of tracing the clients' work, which takes seconds.
  factory = weighted_factory(wiring.model_aggregator, client_weighting)
  return composition.compose(
    client_work.build_client_work(
      build_local_update(train, client_weighting, revise),
      composition.initial_weights(model, wiring.seed),
      data_spec=data_spec,
      initial_hparams=initial_hparams,
      wiring=wiring,
      memories=memories,
    ),
    create_aggregator=factory.create,
    build_finalizer=build_finalizer
    or functools.partial(finalizers.build_apply_mean_delta, server_optimizer),
    wiring=wiring,
    idle_rounds=idle_rounds,
    view=view,
    measurable=measurable(measured, data_spec, client_weighting)
    if measured
    else None,
  )
