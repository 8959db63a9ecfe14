"""What a client of a round costs with each aggregator, beside the plain mean.

The clients do the same in all: supervised steps of the dense network, of which
each takes less than a millisecond, so that what the aggregator adds shows as
much as it ever does. Secure sums are simulated: the same arithmetic, without
cryptography.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import tensorflow_federated as tff

from benchmarks import candidates, measurement, workloads
from tff_ssl import augmentation
from tff_ssl.aggregators import recommended
from tff_ssl.algorithms import PROCESSES

_MODEL = 'dense'

WORKLOAD = workloads.Steps(clients=20, steps=50, batch_size=20)

# Those that take the weights of clients. `median_ms` are the medians of all
# candidates' times.
AGGREGATORS: Mapping[
  str, Callable[[], tff.aggregators.WeightedAggregationFactory]
] = {
  {'median': 'coordinate_median'}.get(name, name): functools.partial(
    recommended.recommended_aggregator,
    name,
    **({'clip_norm': 1.0} if name == 'clip' else {}),
  )
  for name, spec in recommended.AGGREGATORS.items()
  if spec.is_weighted
}


def build_all(
  workload: workloads.Steps, folder: str
) -> dict[str, candidates.Round]:
  """Returns the candidates by the names of `AGGREGATORS`.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
  """
  store = workload.build_store(folder)

  def rounds(build_aggregator):
    def build(data_spec):
      return PROCESSES['fedavg'].build(
        workloads.build_model(_MODEL),
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
