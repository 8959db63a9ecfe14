"""Gradient diversity while a run goes on, on one fixed set of clients."""

import math

from experiments.running import building
from tff_ssl import metrics
from tff_ssl.simulation import client_reader, client_sampling

# The clients are drawn as those of a round that no run reaches: so they are the
# same for every process with the same seed and population.
_PROBE_ROUND = 2**31


class DiversityProbe:
  """Measures a process's gradient diversity (`tff_ssl.metrics`)."""

  def __init__(self, process, data, settings):
    """Prepares the measurement; it is traced when it is first used.

    Args:
      process: From `building.build_process`.
      data: `RunData`.
      settings: From `experiments.config.settings.make`.
    """
    self._measure = client_reader.compose_computation_with_reader(
      metrics.build_process_diversity(process),
      building.build_reader(data),
    )
    self._process = process
    self._seed = settings.seed
    self._keys = client_sampling.sample_keys(
      num_clients=data.partition.num_clients,
      clients_per_round=settings.gradient_diversity_clients,
      num_groups=process.parts.num_groups,
      seed=settings.seed,
      round_num=_PROBE_ROUND,
      redeal=settings.start_model == 'slot',
    )

  def __call__(self, state, round_num: int) -> dict[str, float]:
    """Returns the variants by name, without those that are not finite.

    Args:
      state: The process's state.
      round_num: Rounds done.
    """
    measured = self._measure(
      metrics.measured_state(
        self._process, state, round_num=round_num, seed=self._seed
      ),
      self._keys,
    )
    return {
      name: float(value)
      for name, value in measured.items()
      if math.isfinite(value)
    }
