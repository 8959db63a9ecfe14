"""A server that trains after aggregation, on the model that clients gave it.

Diao et al., SemiFL (arXiv 2106.01432): the server fine-tunes the aggregated
model on its labels, which corrects what wrong pseudo-labels did to it. In Zhang
et al. (`tff_ssl.algorithms.grouping`) the server trains beside the clients.
"""

import collections
import dataclasses

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols, randomness
from tff_ssl.templates import local_training, stacks
from tff_ssl.templates.server import (
  finalizers,
  server_training,
  static_statistics,
)


@dataclasses.dataclass(frozen=True)
class FineTuning(server_training.ServerTraining):
  """The server's training of one model, with a fresh momentum each round.

  Attributes:
    statistics: If given, how the statistics of batch normalisation are
      computed anew afterwards, on the labelled examples.
  """

  statistics: static_statistics.StaticStatistics | None = None

  @property
  def replaces_statistics(self) -> bool:
    """Whether no non-trainable weight stays as it was before the training."""
    return self.statistics is not None and None not in self.statistics.momenta

  def run(
    self,
    start: tff.learning.models.ModelWeights,
    optimizer_state: protocols.OptimizerState,
    *,
    seed: tf.Tensor,
    round_num: tf.Tensor,
  ) -> local_training.TrainingResult:
    """Trains one round from `start`; see `ServerTraining.run`."""
    fresh = self.set_hparams(
      self.initial_optimizer_state(), self.get_hparams(optimizer_state)
    )
    result = super().run(start, fresh, seed=seed, round_num=round_num)
    if self.statistics is None or not self.statistics.has_any:
      return result
    weights = self.statistics.recompute(
      self.first_replica(result.weights),
      self.read_examples()['x'],
      randomness.fold_in(
        randomness.server_seed(seed, round_num), randomness.Purpose.STATISTICS
      ),
    )
    return result._replace(weights=stacks.stack([weights]))


def fine_tuning(
  training: local_training.LocalTraining,
  data: tff.Computation,
  views: protocols.Views,
) -> FineTuning:
  """Returns a server's training with static batch normalisation.

  Args:
    training: The `LocalTraining` to run.
    data: As in `ServerTraining`.
    views: Gives the plain view, of which the statistics are.

  Raises:
    TypeError: If `data` gives no labelled examples.
    ValueError: If the model has moving weights that are no averages.
  """
  statistics = static_statistics.StaticStatistics.of(training.model, views)
  return FineTuning(training, data, statistics=statistics)


def then_train(
  finalizer: tff.learning.templates.FinalizerProcess,
  server: FineTuning,
  *,
  weights_type: tff.Type,
  seed: int,
) -> tff.learning.templates.FinalizerProcess:
  """Lets the server train what a finalizer makes of the aggregate.

  Args:
    finalizer: Applies the aggregate to the weights.
    server: How the server trains from there.
    weights_type: Unplaced type of the `ModelWeights`.
    seed: The run's seed.

  Returns:
    A `tff.learning.templates.FinalizerProcess` with the hyperparameters of the
    server's training, whose measurements are
    `<server=<loss, accuracy>, update_non_finite=int32>`; that counts aggregates
    and trainings that were not finite, and were left out.
  """
  *_, aggregate_type = finalizers.types_of(finalizer)
  training = server_training.build_server_training(
    server,
    lambda weights, trained, aggregate: server.first_replica(trained),
    server_start=lambda weights, aggregate: weights,
    weights_type=weights_type,
    aggregate_type=aggregate_type,
    seed=seed,
  )
  state_type = tff.types.to_type(
    collections.OrderedDict(
      (name, process.initialize.type_signature.result.member)
      for name, process in (('apply', finalizer), ('train', training))
    )
  )

  @tff.tensorflow.computation(np.int32, np.int32)
  def add(a, b):
    return a + b

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        apply=finalizer.initialize(), train=training.initialize()
      )
    )

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(aggregate_type, tff.SERVER),
  )
  def next_fn(state, weights, aggregate):
    applied = finalizer.next(state['apply'], weights, aggregate)
    trained = training.next(state['train'], applied.result, aggregate)
    measurements = collections.OrderedDict(
      server=trained.measurements['server'],
      update_non_finite=tff.federated_map(
        add,
        (
          applied.measurements['update_non_finite'],
          trained.measurements['update_non_finite'],
        ),
      ),
    )
    return tff.templates.MeasuredProcessOutput(
      tff.federated_zip(
        collections.OrderedDict(apply=applied.state, train=trained.state)
      ),
      trained.result,
      tff.federated_zip(measurements),
    )

  process_class = (
    finalizers.StatisticsReplacingProcess
    if server.replaces_statistics
    else tff.learning.templates.FinalizerProcess
  )
  return finalizers.around(
    training, initialize, next_fn, field='train', process_class=process_class
  )
