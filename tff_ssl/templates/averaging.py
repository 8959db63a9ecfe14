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

from tff_ssl import shared_settings
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

# What a client does with its task. An update is sent as it is; a result, whose
# weights are those of the global model, becomes one by `update_from`.
Train = Callable[
  [client_task.ClientTask],
  client_task.TrainingResult | client_task.LocalUpdate,
]


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


def build_local_update(
  train: Train, client_weighting: str
) -> client_task.LocalWork:
  """Returns the local update of clients that send what `train` has changed."""

  def local_update(task):
    trained = train(task)
    if isinstance(trained, client_task.TrainingResult):
      trained = update_from(task, trained, client_weighting)
    return trained, None

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
      "client_weighting asks for them: use 'uniform'."
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
  training: local_training.LocalTraining,
  *,
  data_spec: client_data.ClientDataSpec,
  client_weighting: str,
  wiring: Wiring,
  train: Train | None = None,
  model: functional.FunctionalModel | None = None,
  server: tff.learning.optimizers.Optimizer
  | Callable[..., tff.learning.templates.FinalizerProcess]
  | None = None,
  memories: tuple[memories_lib.Memory, ...] = (),
  view: composition.ModelView | None = None,
  idle_rounds: int = 0,
) -> composition.ComposedProcess:
  """Composes the learning process.

  Args:
    training: The clients', whose hyperparameters the process has. Its plan says
      whether momentum outlives a round: then `train` goes on from the task's
      `optimizer_state`, and the result's is the next one.
    data_spec: The type of the client data.
    client_weighting: 'examples' or 'uniform'; see `update_from`.
    wiring: Its `model_aggregator` is by default `tff.aggregators.MeanFactory`.
    train: What a client does with its task; by default its training of the
      whole model, of which alone gradient diversity can be measured.
    model: Whose weights are global; by default the training's.
    server: The server's optimizer, by default SGD with learning rate 1: plain
      FedAvg. Or, where the server does more, what builds the finalizer; see
      `composition.compose`.
    memories: What outlives a round, beside weights and momentum.
    view: See `composition.compose`.
    idle_rounds: First rounds in which clients do nothing; an own `train` sees
      to that.

  Raises:
    ValueError: If an argument is out of range, or `model_aggregator` would add
      noise to moving statistics.
    TypeError: If model and client data do not fit each other.
  """
  model = model or training.model
  data_spec.check_model(model)
  # Ahead of tracing the clients' work, which takes seconds.
  factory = weighted_factory(wiring.model_aggregator, client_weighting)
  measured = None
  if train is None:
    measured = measurable(training, data_spec, client_weighting)
    train = training.run_task
    if idle_rounds:
      train = lambda task: training.run_task(
        task, active=task.round >= idle_rounds
      )
  if server is None or isinstance(server, tff.learning.optimizers.Optimizer):
    server = functools.partial(finalizers.build_apply_mean_delta, server)
  momentum = memories_lib.client_momentum(
    training.plan.client_momentum, data_spec, training.initial_optimizer_state
  )
  return composition.compose(
    client_work.build_client_work(
      build_local_update(train, client_weighting),
      composition.initial_weights(model, wiring.seed),
      data_spec=data_spec,
      initial_hparams=training.initial_hparams,
      wiring=wiring,
      memories=(*momentum, *memories),
    ),
    create_aggregator=factory.create,
    build_finalizer=server,
    wiring=wiring,
    idle_rounds=idle_rounds,
    view=view,
    measurable=measured,
  )
