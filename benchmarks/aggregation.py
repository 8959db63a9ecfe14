"""What a client of a round costs with each aggregator, beside the plain mean.

The clients do the same in all: supervised steps of the dense network, of which
each takes less than a millisecond, so that what the aggregator adds shows as
much as it ever does. Secure sums are simulated: the same arithmetic, without
cryptography.
"""

import functools
from collections.abc import Callable, Mapping

import tensorflow_federated as tff

from benchmarks import candidates, measurement, workloads
from tff_ssl.aggregators import recommended

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

  return {
    name: candidates.rounds_of(
      'fedavg',
      _MODEL,
      workload,
      store,
      client_optimizer=tff.learning.optimizers.build_sgdm(
        workloads.LEARNING_RATE
      ),
      model_aggregator=build(),
    )
    for name, build in AGGREGATORS.items()
  }


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
  rounds = build_all(workload, folder)
  ratios = {
    f'{name}_over_mean': (name, 'mean') for name in rounds if name != 'mean'
  }
  return measurement.compare_steps(workload, rounds, repetitions, ratios)
