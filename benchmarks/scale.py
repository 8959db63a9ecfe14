"""Many clients: a store of 100,000 of them, and rounds of 1,000.

    python -m benchmarks.scale

prints one JSON object, which `--write=FILE` writes down, too:

  * `build`: partitioning and packing, in a process of its own;
  * `open`: opening the store, drawing the participants of a round and reading
    one client, in another one;
  * `rounds`: rounds with a dense network.

Each client has ten images of 28x28 pixels, so the store takes 0.8 GB of disk.
"""

import argparse
import dataclasses
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# As in runs.
os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')

import psutil
import tensorflow as tf

from benchmarks import candidates, machine, results_file, workloads
from datasets.store import client_store
from tff_ssl.simulation import client_sampling

_EXAMPLES = 10
_REPETITIONS = 200
_WARM_UP_ROUNDS = 2


def main() -> None:
  """Runs the benchmark and prints its results."""
  parser = argparse.ArgumentParser(prog='python -m benchmarks.scale')
  parser.add_argument('--num_clients', type=int, default=100_000)
  parser.add_argument('--clients_per_round', type=int, default=1_000)
  parser.add_argument('--rounds', type=int, default=20)
  parser.add_argument('--write', metavar='FILE')
  flags = parser.parse_args()
  sizes = flags.num_clients, flags.clients_per_round
  results = {
    'machine': machine.describe(),
    'num_clients': flags.num_clients,
    'clients_per_round': flags.clients_per_round,
    'examples_of_a_client': _EXAMPLES,
  }
  with tempfile.TemporaryDirectory() as folder:
    results['build'], store = _in_a_process(_build, flags.num_clients, folder)
    results['open'] = _in_a_process(_open, store, *sizes)
    results['rounds'] = _in_a_process(
      _train, store, flags.clients_per_round, flags.rounds
    )
  print(json.dumps(results, indent=2))
  if flags.write:
    results_file.write(results, flags.write)


def _in_a_process(function: Callable, *arguments):
  """Calls a function in a process of its own, so that its memory is its own."""
  with multiprocessing.get_context('spawn').Pool(1) as pool:
    return pool.apply(function, arguments)


def _build(num_clients, folder):
  before = _peak_mib()
  began = time.perf_counter()
  store = workloads.build_store(num_clients, _EXAMPLES, folder)
  return {
    'seconds': round(time.perf_counter() - began, 1),
    'file_mib': round(store.file_size / 2**20),
    'peak_mib': round(_peak_mib()),
    'peak_mib_before': round(before),
  }, store


def _open(store, num_clients, clients_per_round):
  before = _mib()
  began = time.perf_counter()
  is_sound = store.is_sound()
  opened = time.perf_counter() - began
  if not is_sound:
    raise RuntimeError(f'{store.path} is damaged: run the benchmark again.')
  after = _mib()
  draws = [
    _seconds(_sample, num_clients, clients_per_round, round_num)
    for round_num in range(_REPETITIONS)
  ]
  read = tf.function(
    lambda index: client_store.client_dataset(store, index).get_single_element()
  )
  read(tf.constant(0))
  reads = [
    _seconds(read, tf.constant(index))
    for index in range(0, num_clients, num_clients // _REPETITIONS)
  ]
  return {
    'milliseconds': round(1000 * opened, 1),
    'mib': round(after - before, 1),
    'sample_a_round_ms': round(1000 * statistics.median(draws), 2),
    'read_a_client_ms': round(1000 * statistics.median(reads), 3),
  }


def _train(store, clients_per_round, rounds):
  workload = dataclasses.replace(
    workloads.WORKLOADS['dense'],
    clients=clients_per_round,
    steps=1,
    batch_size=_EXAMPLES,
  )
  run_round = candidates.build_ours(workload, store)
  seconds, memory = [], []
  for _ in range(rounds):
    seconds.append(_seconds(run_round))
    memory.append(_mib())
  median = statistics.median(seconds[_WARM_UP_ROUNDS:])
  return {
    'seconds': round(median, 2),
    'milliseconds_of_a_client': round(1000 * median / clients_per_round, 2),
    'mib_after_a_quarter': round(memory[rounds // 4]),
    'mib_at_the_end': round(memory[-1]),
  }


def _sample(num_clients, clients_per_round, round_num):
  return client_sampling.sample_keys(
    num_clients=num_clients,
    clients_per_round=clients_per_round,
    num_groups=1,
    seed=0,
    round_num=round_num,
  )


def _seconds(function, *arguments) -> float:
  began = time.perf_counter()
  function(*arguments)
  return time.perf_counter() - began


def _mib() -> float:
  return psutil.Process().memory_info().rss / 2**20


def _peak_mib() -> float:
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == '__main__':
  main()
