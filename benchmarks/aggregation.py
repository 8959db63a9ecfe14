"""What a client of a round costs with each aggregator, beside the plain mean.

The clients do the same in all: supervised steps of the dense network, of which
each takes less than a millisecond, so that what the aggregator adds shows as
much as it ever does. Secure sums are simulated: the same arithmetic, without
cryptography.
"""

import dataclasses
from collections.abc import Callable

import tensorflow_federated as tff

import tff_ssl
from benchmarks import candidates, measurement, workloads
from tff_ssl import augmentation, models
from tff_ssl.algorithms import PROCESSES

_MODEL = 'dense'

WORKLOAD = workloads.Steps(clients=20, steps=50, batch_size=20)

AGGREGATORS: dict[
  str, Callable[[], tff.aggregators.WeightedAggregationFactory]
] = {
  'mean': tff.aggregators.MeanFactory,
  'clip': lambda: tff.aggregators.clipping_factory(
    1.0, tff.aggregators.MeanFactory()
  ),
  'robust': tff.learning.robust_aggregator,
  # `median_ms` are the medians of all candidates' times.
  'coordinate_median': tff_ssl.MedianFactory,
  'trimmed_mean': tff_ssl.TrimmedMeanFactory,
  'geometric_median': tff_ssl.GeometricMedianFactory,
  'compressed': tff.learning.compression_aggregator,
  'secure': tff.learning.secure_aggregator,
}


def build_all(
  workload: workloads.Steps, folder: str
) -> dict[str, candidates.Round]:
  """Returns the candidates by the names of `AGGREGATORS`.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
  """
  store = workloads.build_store(
    workload.clients, workload.steps * workload.batch_size, folder
  )

  def rounds(build_aggregator):
    def build(data_spec):
      return PROCESSES['fedavg'].build(
        models.build(
          _MODEL, workloads.INPUT_SHAPE, workloads.NUM_CLASSES, 'none'
        ),
        data_spec=data_spec,
        views=augmentation.PlainViews(),
        client_optimizer=tff.learning.optimizers.build_sgdm(
          workloads.LEARNING_RATE
        ),
        batch_size=workload.batch_size,
        local_steps=workload.steps,
        model_aggregator=build_aggregator(),
      )

    return candidates.rounds_over_store(build, store, workload.clients)

  return {name: rounds(build) for name, build in AGGREGATORS.items()}


def compare(workload: workloads.Steps, folder: str, repetitions: int) -> dict:
  """Compares the aggregators.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
    repetitions: Timed rounds of each candidate.

  Returns:
    The sizes; times as `measurement.compare` has them; and for each aggregator
    `<name>_over_mean`, the ratio of the best rounds.
  """
  seconds = measurement.time_rounds(build_all(workload, folder), repetitions)
  best = {name: min(values) for name, values in seconds.items()}
  return {
    **dataclasses.asdict(workload),
    **measurement.per_client(seconds, workload.clients),
    **{
      f'{name}_over_mean': round(best[name] / best['mean'], 3)
      for name in best
      if name != 'mean'
    },
  }
