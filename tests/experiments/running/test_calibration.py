"""Which round a dry run times."""

import functools

from scipy import stats

from experiments.running import calibration, participants
from tff_ssl.simulation import client_sampling
from tff_ssl.simulation.client_faults import ClientFaults

_CLIENTS, _PER_ROUND = 100, 4


def test_a_poisson_round_of_usual_size():
  """The median of nine draws is within the middle 90% of one, of 100 seeds."""
  draw = client_sampling.Draw('poisson', _CLIENTS, _PER_ROUND)
  usual = stats.binom(_CLIENTS, _PER_ROUND / _CLIENTS)
  sizes, single = [], []
  for seed in range(100):
    sample = functools.partial(
      client_sampling.sample_keys,
      num_clients=_CLIENTS,
      clients_per_round=_PER_ROUND,
      num_groups=1,
      seed=seed,
      draw=draw,
    )
    cohorts = participants.Cohorts(sample, ClientFaults(_CLIENTS, seed))
    sizes.append(len(calibration.typical_keys(cohorts, 7)))
    single.append(len(sample(round_num=7)))
  assert usual.ppf(0.05) <= min(sizes) and max(sizes) <= usual.ppf(0.95)
  # A single draw would not do: there are some without a client.
  assert min(single) == 0
