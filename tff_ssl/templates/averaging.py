"""A round whose server step is that of FedAvg and FedOpt, whatever clients do.

McMahan et al. (arXiv 1602.05629), Algorithm 1, in the form of Reddi et al.
(arXiv 2003.00295): the mean of the clients' model deltas, weighted by the
examples that they processed, is a gradient for the server optimizer.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators, checks
from tff_ssl.templates import (
  alternate_training,
  client_state,
  client_work,
  composition,
  finalizers,
  local_training,
  slots,
)


def run_training(
  training: local_training.LocalTraining, task: client_work.ClientTask, **more
) -> local_training.TrainingResult:
  """Trains on a client's task, from the weights that it was sent.

  Args:
    training: What is run: by default with the task's weights, examples, seed,
      round, hyperparameters and slot state, and the constants of the client.
    task: The `ClientTask`.
    **more: Further arguments of `LocalTraining.run`, or others in place of the
      task's.

  Returns:
    A `TrainingResult`.
  """
  arguments = {
    'start': task.weights,
    'examples': task.examples,
    'seed': task.client_seed,
    'round_num': task.round,
    'optimizer_state': task.slot_state,
    'hparams': task.hparams,
    'constants': task.constants,
  }
  return training.run(**{**arguments, **more})


def train_all(
  training: local_training.LocalTraining,
) -> Callable[[client_work.ClientTask], local_training.TrainingResult]:
  """Returns the `train` of `compose` that trains all of the global model."""

  return lambda task: run_training(training, task)


def compose(
  train: Callable[[client_work.ClientTask], local_training.TrainingResult],
  *,
  model,
  data_spec,
  initial_hparams: Callable[[], Any],
  initial_optimizer_state: Callable[[], Any],
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_training: alternate_training.FineTuning | None = None,
  client_weighting: str = 'examples',
  leaves_out_idle: bool = False,
  client_momentum: str = 'reset',
  num_slots: int | None = None,
  client_state_dir: str | None = None,
  initial_client_state: Callable[[client_work.ClientTask], Any] | None = None,
  sent_part: Callable | None = None,
  build_finalizer: Callable | None = None,
  shared_state: client_work.SharedState | None = None,
  effective_steps: Callable[..., tf.Tensor] | None = None,
  model_distributor: tff.learning.templates.DistributionProcess | None = None,
  model_aggregator=None,
  metrics_aggregator=None,
  to_model_weights: Callable | None = None,
  from_model_weights: Callable | None = None,
  server_restart_round: int | None = None,
  measured_training: local_training.LocalTraining | None = None,
  idle_rounds: int = 0,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Composes the learning process.

  Args:
    train: What a client does with its task. The result's weights are those of
      `model`; where momentum stays with the slot, it goes on from the task's
      `slot_state`, and the result's optimizer state is the next one.
    model: The `FunctionalModel` whose weights are global.
    data_spec: `ClientDataSpec`, the type of client data.
    initial_hparams: Returns the client optimizer's hyperparameters.
    initial_optimizer_state: Returns a fresh state of the client optimizer.
    server_optimizer: By default SGD with learning rate 1: plain FedAvg.
    server_training: If given, how the server goes on from the averaged model.
    client_weighting: 'examples' (processed in the round) or 'uniform'.
    leaves_out_idle: Whether 'uniform', too, gives weight 0 to a client that has
      processed no example.
    client_momentum: 'reset': a fresh optimizer state every round. 'slot': the
      one that the slot's client of the round before left.
    num_slots: C, where momentum stays with the slot.
    client_state_dir: See `client_work.build_client_work`.
    initial_client_state: Likewise.
    sent_part: From a client's delta to what it sends of it; by default all.
    build_finalizer: Called with `weights_type` and `aggregate_type`, unplaced;
      by default the mean delta goes to `server_optimizer`.
    shared_state: What all clients share; each result has a `shared_change`.
    effective_steps: From a client's task and result to a `float32` scalar >= 0
      by which its delta is normalised: see `aggregators.NormalizedMeanFactory`.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: By default `tff.aggregators.MeanFactory()`.
    metrics_aggregator: As in TFF's builders.
    to_model_weights: See `composition.compose`.
    from_model_weights: See `composition.compose`.
    server_restart_round: See `finalizers.build_apply_mean_delta`.
    measured_training: What gradient diversity is measured of, if of anything.
    idle_rounds: First rounds in which every client sends zeros.
    seed: Root of all randomness, in [0, 2**31).

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range, or `model_aggregator` would add
      noise to moving statistics.
    TypeError: If model and client data do not fit each other.
  """
  data_spec.check_model(model)
  checks.choice(client_weighting=client_weighting)
  slots.check_momentum(client_momentum, num_slots, data_spec)
  if client_state_dir is not None:
    client_state.check_folder(client_state_dir)

  def local_update(task):
    result = train(task)
    steps = effective_steps(task, result) if effective_steps else None
    weight = result.num_examples
    if client_weighting == 'uniform':
      weight = (
        tf.cast(weight > 0, tf.float32) if leaves_out_idle else tf.constant(1.0)
      )
    delta = client_work.subtract(result.weights, task.weights)
    update = client_work.LocalUpdate(
      delta if sent_part is None else sent_part(delta),
      weight,
      result.metrics,
      tf.constant(False),
      result.optimizer_state,
      result.client_state,
      passes=result.passes,
      shared_change=result.shared_change,
    )
    return update, steps

  # Ahead of tracing the clients' work, which takes seconds.
  factory = _weighted_factory(
    model_aggregator or tff.aggregators.MeanFactory(no_nan_division=True),
    client_weighting,
    normalized=effective_steps is not None,
  )
  initial_weights = composition.initial_weights_computation(model, seed)
  weights_type = initial_weights.type_signature.result
  work = client_work.build_client_work(
    local_update,
    data_spec=data_spec,
    weights_type=weights_type,
    initial_hparams=initial_hparams,
    num_slots=num_slots or 0,
    initial_slot_state=initial_optimizer_state,
    client_state_dir=client_state_dir,
    initial_client_state=initial_client_state,
    shared_state=shared_state,
    tag_name='steps',
    metrics_aggregator=metrics_aggregator,
  )
  parts = None
  if measured_training is not None:
    parts = composition.Parts(
      measured_training,
      # Without a tag, which would be taken for a group.
      lambda task: (local_update(task)[0], None),
      lambda task: task.weights,
      data_spec,
      weights_type,
    )
  result_type = work.next.type_signature.result.result.member
  aggregator = aggregators.rest_in_first_rounds(
    factory.create(result_type.update, result_type.update_weight), idle_rounds
  )
  if build_finalizer is None:
    finalizer = finalizers.build_apply_mean_delta(
      server_optimizer or tff.learning.optimizers.build_sgdm(1.0),
      weights_type,
      model.weights_spec.trainable,
      restart_round=server_restart_round,
    )
  else:
    finalizer = build_finalizer(
      weights_type=weights_type,
      aggregate_type=aggregator.next.type_signature.result.result.member,
    )
  if server_training is not None:
    finalizer = alternate_training.then_train(
      finalizer, server_training, weights_type=weights_type, seed=seed
    )
  return composition.compose(
    initial_weights,
    seed=seed,
    distributor=model_distributor,
    client_work=work,
    aggregator=aggregator,
    finalizer=finalizer,
    to_model_weights=to_model_weights,
    from_model_weights=from_model_weights,
    parts=parts,
    replaces_statistics=(
      server_training is not None and server_training.replaces_statistics
    ),
  )


def _weighted_factory(factory, client_weighting, normalized):
  if isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    if client_weighting != 'uniform':
      raise ValueError(
        'model_aggregator ignores weights (it is unweighted), but '
        f"client_weighting is {client_weighting!r}: use 'uniform'."
      )
    factory = tff.aggregators.as_weighted_aggregator(factory)
  if normalized:
    factory = aggregators.NormalizedMeanFactory(factory)
  return factory
