"""Timings and memory of rounds, on machines that do other work besides."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
import tqdm

from benchmarks import candidates, workloads
from tff_ssl.simulation import worker_context

WARM_UP_ROUNDS = 2
CLIENTS_SCALE = (10, 47, 120, 470)
POPULATION_SCALE = (100, 1000, 3400)
MEMORY_AT_ROUNDS = (20, 100, 200, 300)

# Of a client in the scaling runs, so that thousands of them fit on any disk.
_SCALING_EXAMPLES = 40


def time_rounds(
  rounds: candidates.Rounds, repetitions: int
) -> dict[str, list[float]]:
  """Times every candidate `repetitions` times, one after another in turn.

  In turn, because a busy machine then disturbs all of them alike. Their workers
  are stopped at the end. Rounds of `WARM_UP_ROUNDS` are not timed.

  Returns:
    Seconds of each timed round, by name.
  """
  seconds = {name: [] for name in rounds}
  turns = range(-WARM_UP_ROUNDS, repetitions)
  for turn in tqdm.tqdm(turns, desc=', '.join(rounds), disable=None):
    for name, run_round in rounds.items():
      start = time.perf_counter()
      run_round()
      if turn >= 0:
        seconds[name].append(time.perf_counter() - start)
  worker_context.stop_workers()
  return seconds


def compare(
  workload: workloads.Workload, folder: str, repetitions: int
) -> dict:
  """Compares all candidates on one workload, with a client store in a folder.

  Returns:
    For each candidate `<name>_ms`, the best repetition in milliseconds per
    client, and its `median` under `median_ms`; the sizes; and the ratios.
  """
  store = workloads.build_store(workload.clients, workload.examples, folder)
  seconds = time_rounds(candidates.build_all(workload, store), repetitions)
  best = {name: min(values) for name, values in seconds.items()}
  result = per_client(seconds, workload.clients)
  result['ours_over_worker'] = round(best['ours'] / best['worker'], 3)
  result['ours_over_stock'] = round(best['ours'] / best['stock_tff'], 3)
  result['ours_over_bare'] = round(best['ours'] / best['bare_loop'], 3)
  if 'crl' in best:
    result['crl_over_supervised'] = round(best['crl'] / best['ours'], 3)
  return {
    'clients': workload.clients,
    'steps': workload.steps,
    'batch_size': workload.batch_size,
    **result,
  }


@dataclasses.dataclass
class Section:
  """Candidates that are compared.

  Attributes:
    workload: A dataclass with the sizes of a round; it has `clients`.
    build_all: From the workload, and the folder for client stores, to the
      candidates by name.
    ratios: By name, of best rounds: one candidate over the sum of the others.
    measure_more: From the workload and the repetitions to further results.
  """

  workload: Any
  build_all: Callable[[Any, str], candidates.Rounds]
  ratios: Mapping[str, Sequence[str]]
  measure_more: Callable[[Any, int], dict] = lambda *_: {}

  def compare(self, folder: str, repetitions: int) -> dict:
    """Returns the sizes; times as `compare` has them; ratios; and the rest."""
    seconds = time_rounds(self.build_all(self.workload, folder), repetitions)
    best = {name: min(values) for name, values in seconds.items()}
    return {
      **dataclasses.asdict(self.workload),
      **per_client(seconds, self.workload.clients),
      **{
        name: round(best[upper] / sum(best[each] for each in lower), 3)
        for name, (upper, *lower) in self.ratios.items()
      },
      **self.measure_more(self.workload, repetitions),
    }


def per_client(
  seconds: dict[str, list[float]], clients: int
) -> dict[str, float | dict[str, float]]:
  """Returns what `compare` says of each candidate of `time_rounds`."""
  to_ms = 1000 / clients
  return {
    **{
      f'{name}_ms': round(min(values) * to_ms, 2)
      for name, values in seconds.items()
    },
    'median_ms': {
      name: round(statistics.median(values) * to_ms, 2)
      for name, values in seconds.items()
    },
  }


def scale(workload: workloads.Workload, folder: str, repetitions: int) -> dict:
  """Times our rounds for growing numbers of clients.

  Returns:
    `per_round_by_clients` and `per_round_by_population`: the best time of a
    round in milliseconds by C (with K = C), and by K with the workload's C.
  """

  def best_ms(clients, population):
    sized = workload.with_clients(clients)
    store = workloads.build_store(population, _SCALING_EXAMPLES, folder)
    rounds = {f'{clients} of {population}': candidates.build_ours(sized, store)}
    (seconds,) = time_rounds(rounds, repetitions).values()
    return round(min(seconds) * 1000, 1)

  return {
    'per_round_by_clients': {
      str(clients): best_ms(clients, clients) for clients in CLIENTS_SCALE
    },
    'per_round_by_population': {
      str(population): best_ms(workload.clients, population)
      for population in POPULATION_SCALE
    },
  }


def follow_memory(
  run_round: candidates.Round, num_rounds: int
) -> dict[str, float]:
  """Returns the resident MiB after each of `MEMORY_AT_ROUNDS`, and the last."""
  memory = {}
  for done in tqdm.trange(1, num_rounds + 1, desc='memory', disable=None):
    run_round()
    if done in MEMORY_AT_ROUNDS or done == num_rounds:
      own = psutil.Process().memory_info().rss / 2**20
      memory[str(done)] = round(own, 1)
  return memory
