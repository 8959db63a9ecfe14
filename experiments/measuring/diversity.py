"""Gradient diversity during a run, of fixed clients or of participants.

With fixed clients, the row of round t has the diversity at the model that round
t ends with. The clients are the same for every process, so that processes can
be compared. With participants, it has that of the clients of round t, in their
groups of round t, at the models that they receive in round t: the C_t and w_k^t
of Zhang et al., Definition 1. Their number may differ between processes, and
with it what the variants mean.
"""

import math
from collections.abc import Sequence
from typing import Any

from experiments.measuring.evaluation import Measurement
from tff_ssl import metrics
from tff_ssl.simulation import client_faults, client_reader, client_sampling

# The clients are sampled as for a round that no run reaches. So they are the
# same for every process with the same seed and population.
_PROBE_ROUND = 2**31


class Meter:
  """Measures a process's gradient diversity (`tff_ssl.metrics`).

  Attributes:
    process: The process that is measured.
    seed: The run's seed.
  """

  def __init__(
    self,
    process,
    reader,
    *,
    rounds_between: int,
    total_rounds: int,
    seed: int,
  ):
    """Prepares the measurement; TensorFlow traces it when it is first used.

    The process is over clients' data, which the reader gives for a key. Every
    `rounds_between` rounds are measured, and the last one.
    """
    self._measure = client_reader.compose_computation_with_reader(
      metrics.build_process_diversity(process), reader
    )
    self.process = process
    self.seed = seed
    self._rounds_between = rounds_between
    self._total_rounds = total_rounds

  def is_due(self, number: int) -> bool:
    """Returns whether a round, 1 for the first, is measured."""
    return not number % self._rounds_between or number == self._total_rounds

  def before_round(
    self, rounds_done: int, state: Any, keys: Sequence[Any], attempt: int = 0
  ) -> dict[str, float]:
    """Measures the participants of a round that is due."""
    del attempt
    if not self.is_due(rounds_done + 1):
      return {}
    return self.measure(rounds_done, state, keys)

  def measure(
    self, rounds_done: int, state: Any, keys: Sequence[Any]
  ) -> dict[str, float]:
    """Returns the variants of diversity by name, as far as they are finite.

    The state is that after `rounds_done` rounds, the keys are of the clients
    that are measured.
    """
    measured = self._measure(
      metrics.measured_state(
        self.process, state, round_num=rounds_done, seed=self.seed
      ),
      keys,
    )
    return {
      name: float(value)
      for name, value in measured.items()
      if math.isfinite(value)
    }


def of_fixed_clients(
  meter: Meter, *, num_clients: int, clients_measured: int, redeal: bool
) -> Measurement:
  """Returns what measures the same clients after each round that is due."""
  parts = meter.process.measurable
  keys = client_sampling.sample_keys(
    num_clients=num_clients,
    clients_per_round=clients_measured,
    num_groups=parts.num_groups,
    seed=meter.seed,
    round_num=_PROBE_ROUND,
    redeal=redeal,
  )
  if parts.data_spec.has_faults:  # Nothing goes wrong at these clients.
    keys = [client_faults.append(key) for key in keys]

  def measure(finished):
    if not meter.is_due(finished.number):
      return {}
    return meter.measure(finished.number, finished.state, keys)

  return measure
