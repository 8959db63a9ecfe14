"""Gradient diversity during a run, measured on one fixed set of clients."""

import math

from experiments.measuring.finished_round import FinishedRound
from experiments.preparing import building
from tff_ssl import metrics
from tff_ssl.simulation import client_reader, client_sampling

# The clients are sampled as for a round that no run reaches. So they are the
# same for every process with the same seed and population.
_PROBE_ROUND = 2**31


class DiversityProbe:
  """Measures a process's gradient diversity (`tff_ssl.metrics`)."""

  def __init__(
    self,
    process,
    data,
    *,
    num_clients: int,
    rounds_between: int,
    total_rounds: int,
    seed: int,
    redeal: bool,
  ):
    """Prepares the measurement; TensorFlow traces it when it is first used.

    Args:
      process: From `building.build_process`.
      data: `RunData`.
      num_clients: Clients to measure on.
      rounds_between: Rounds between measurements; the last round is always
        measured.
      total_rounds: Rounds of the run.
      seed: The run's seed.
      redeal: As in `client_sampling.sample_keys`.
    """
    self._measure = client_reader.compose_computation_with_reader(
      metrics.build_process_diversity(process),
      building.build_reader(data),
    )
    self._process = process
    self._rounds_between = rounds_between
    self._total_rounds = total_rounds
    self._seed = seed
    self._keys = client_sampling.sample_keys(
      num_clients=data.partition.num_clients,
      clients_per_round=num_clients,
      num_groups=process.parts.num_groups,
      seed=seed,
      round_num=_PROBE_ROUND,
      redeal=redeal,
    )

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Returns the variants of diversity by name, as far as they are finite.

    Args:
      finished: The round; nothing is measured where that is not due.
    """
    number = finished.number
    if number % self._rounds_between and number != self._total_rounds:
      return {}
    measured = self._measure(
      metrics.measured_state(
        self._process, finished.state, round_num=number, seed=self._seed
      ),
      self._keys,
    )
    return {
      name: float(value)
      for name, value in measured.items()
      if math.isfinite(value)
    }
