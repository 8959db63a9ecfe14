"""What a Ray cluster costs and gives, and what it outlasts.

    python -m benchmarks.cluster

starts a cluster of three nodes on this machine, each with one core, and prints
one JSON object. With `--write=FILE`, each section is in the file once it is
measured.

  * `overhead`: a round of 20 clients with a dense network, on two nodes and in
    this process, in turn;
  * `model`: a formula for the seconds of a round, fitted to rounds of 20 to 400
    clients on one node and on two, in two to eight parts, and held against
    rounds of 1,000 clients, which it has not seen;
  * `memory`: of all processes that compute, over many rounds;
  * `speed`: a round of 16 clients with a small CNN on one node and on two, in
    turn;
  * `losses`: rounds during which a process or a node is killed at a random
    moment.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# As in runs.
os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')

import numpy as np
import psutil
import ray
import tensorflow as tf
from ray import cluster_utils
from scipy import optimize

import tff_ssl
from benchmarks import candidates, machine, results_file, workloads
from tff_ssl import augmentation, compat
from tff_ssl.simulation import (
  ray_cluster,
  ray_context,
)

_WARM_UP_ROUNDS = 3
_MEMORY_AT_ROUNDS = (20, 100, 200, 300)
_PART_TIMEOUT_S = 60.0
_SECTIONS = ('overhead', 'model', 'memory', 'speed', 'losses')
_FITTED_CLIENTS = (20, 100, 400)
_FITTED_PARTS = (2, 4, 8)
_PREDICTED_CLIENTS = 1_000
# Parts of a round for each node, so that nodes of unequal speed end together.
_PARTS_OF_A_NODE = 2
_PRINTED_NODES = (1, 2, 4, 8, 16, 32, 64, 128)


def main() -> None:
  """Runs the benchmark and prints its results."""
  parser = argparse.ArgumentParser(prog='python -m benchmarks.cluster')
  parser.add_argument('--repetitions', type=int, default=20)
  parser.add_argument('--kills', type=int, default=20)
  parser.add_argument('--only', default=','.join(_SECTIONS))
  parser.add_argument('--write', metavar='FILE')
  flags = parser.parse_args()
  only = [name for name in _SECTIONS if name in flags.only.split(',')]
  if unknown := set(flags.only.split(',')) - set(_SECTIONS):
    parser.error(f'--only: no {sorted(unknown)}; there are {_SECTIONS}.')
  nodes = cluster_utils.Cluster(
    initialize_head=True, head_node_args={'num_cpus': 0}
  )
  ray_cluster.connect(nodes.address)
  extra = [nodes.add_node(num_cpus=1) for _ in range(3)]
  with tempfile.TemporaryDirectory() as folder:
    sections = run(nodes, extra, folder, flags.repetitions, flags.kills, only)
    results = {'machine': machine.describe()}
    for name, measured in sections:
      results[name] = measured
      print(f'{name} is measured.', file=sys.stderr)
      if flags.write:
        results_file.write(results, flags.write)
  print(json.dumps(results, indent=2))
  ray.shutdown()
  nodes.shutdown()


def run(
  nodes,
  extra,
  folder: str,
  repetitions: int,
  kills: int,
  only: Collection[str],
) -> Iterator[tuple[str, dict]]:
  """Measures the sections one after another.

  Args:
    nodes: The cluster.
    extra: Its nodes beside the head.
    folder: Where client stores go.
    repetitions: Timed rounds of each candidate.
    kills: Rounds that are disturbed.
    only: Which sections are measured.

  Yields:
    The name of a section, and its results of JSON types.
  """

  def build(processes, parts):
    return ray_context.build_ray_context(
      nodes.address,
      num_parts=parts,
      max_processes=processes,
      part_timeout_s=_PART_TIMEOUT_S,
    )

  dense = workloads.WORKLOADS['dense']
  process, keys = _rounds(dense, folder)
  contexts = {number: build(number, 4) for number in (1, 2)}
  two = contexts[2]
  cnn = workloads.WORKLOADS['cnn'].with_clients(16)
  large, large_keys = _rounds(cnn, folder)

  def lose():
    del contexts[1]  # Its node takes the place of one that is lost.
    return _lose(two, large, large_keys, nodes, extra, kills)

  measured = {
    'overhead': lambda: _overhead(two, process, keys, repetitions),
    'model': lambda: _model(contexts, dense, folder, repetitions // 4),
    'memory': lambda: _follow_memory(two, process, keys),
    'speed': lambda: _speed(contexts, large, large_keys, repetitions // 3),
    'losses': lose,  # The last one: nodes are gone after it.
  }
  for name in only:
    for context in contexts.values():
      context._num_parts = 4
    yield name, measured[name]()


def _overhead(cluster, process, keys, repetitions) -> dict:
  """Returns what a round takes on a cluster and in this process."""
  local = tff_ssl.build_context()
  found = {}
  for parts in _FITTED_PARTS:
    cluster._num_parts = parts
    contexts = {'local': local, 'cluster': cluster}
    seconds = _time(contexts, process, keys, repetitions)
    ours, theirs = _ms(seconds['cluster']), _ms(seconds['local'])
    found[f'{parts} parts'] = {
      'local_ms': theirs,
      'cluster_ms': ours,
      'overhead_ms': round(ours - theirs, 1),
    }
  return found


def _speed(contexts, process, keys, repetitions) -> dict:
  """Returns what a round takes on one node and on two."""
  seconds = _time(contexts, process, keys, repetitions)
  one, two = (statistics.median(seconds[nodes]) for nodes in (1, 2))
  return {
    'one_node_ms': _ms(seconds[1]),
    'two_nodes_ms': _ms(seconds[2]),
    'ratio': round(one / two, 2),
  }


def _rounds(workload, folder):
  store = workloads.build_store(workload.clients, workload.examples, folder)
  build = candidates.fed_avg(workload, augmentation.PlainViews())
  return candidates.process_over_store(build, store, workload.clients)


def _installed(context):
  return compat.get_context_stack().install(context)


def _time(contexts, process, keys, repetitions):
  """Times contexts in turn, since a busy machine disturbs all alike then."""
  states, seconds = {}, {name: [] for name in contexts}
  for turn in range(-_WARM_UP_ROUNDS, repetitions):
    clients = next(keys)
    for name, context in contexts.items():
      with _installed(context):
        if name not in states:
          states[name] = process.initialize()
        began = time.perf_counter()
        states[name] = process.next(states[name], clients).state
        if turn >= 0:
          seconds[name].append(time.perf_counter() - began)
  return seconds


def _model(contexts, workload, folder, repetitions) -> dict:
  """Fits seconds = fixed + merge * parts + client * clients / nodes.

  Args:
    contexts: A context for each number of nodes.
    workload: What a client computes.
    folder: Where client stores go.
    repetitions: Timed rounds of each combination.
  """

  def measure(clients, all_parts, rounds):
    process, keys = _rounds(workload.with_clients(clients), folder)
    found = []
    for parts in all_parts:
      for context in contexts.values():
        context._num_parts = parts
      for nodes, seconds in _time(contexts, process, keys, rounds).items():
        found.append((clients, nodes, parts, statistics.median(seconds)))
    return found

  fitted = [
    row
    for n in _FITTED_CLIENTS
    for row in measure(n, _FITTED_PARTS, repetitions)
  ]
  clients, nodes, parts, seconds = np.array(fitted).T
  terms = np.stack([np.ones_like(parts), parts, clients / nodes], axis=1)
  # Relative errors: or else only the longest rounds would count.
  weights = 1 / seconds
  factors, _ = optimize.nnls(
    terms * weights[:, np.newaxis], np.ones_like(seconds)
  )

  def predict(clients, nodes, parts):
    return float(factors @ (1, parts, clients / nodes))

  held_out = measure(_PREDICTED_CLIENTS, [_FITTED_PARTS[-1]], repetitions)
  return {
    **dict(
      zip(('fixed_ms', 'merge_ms', 'client_ms'), _rounded(factors), strict=True)
    ),
    'largest_error_of_the_fit': _largest_error(fitted, predict),
    'clients_of_the_check': _PREDICTED_CLIENTS,
    'largest_error_of_the_check': _largest_error(held_out, predict),
    'check_s': {
      f'{nodes} nodes': [round(seconds, 2), round(predict(n, nodes, parts), 2)]
      for n, nodes, parts, seconds in held_out
    },
    'predicted_s': {
      f'{nodes} nodes': round(
        predict(_PREDICTED_CLIENTS, nodes, _PARTS_OF_A_NODE * nodes), 2
      )
      for nodes in _PRINTED_NODES
    },
  }


def _rounded(factors) -> list[float]:
  return [round(1000 * float(factor), 2) for factor in factors]


def _largest_error(rows, predict) -> float:
  """Returns the largest relative error of a prediction."""
  return round(
    max(abs(predict(*sizes) / seconds - 1) for *sizes, seconds in rows), 2
  )


def _ms(seconds) -> float:
  return round(1000 * statistics.median(seconds), 1)


def _processes():
  """Returns the processes of the cluster that compute."""
  return [
    one
    for one in psutil.process_iter(['cmdline', 'status'])
    if (one.info['cmdline'] or [''])[0].startswith('ray::RayWorker')
    and one.info['status'] != psutil.STATUS_ZOMBIE
  ]


def _follow_memory(context, process, keys) -> dict:
  """Returns the MiB of this process and of all that compute, by round."""
  found = {}
  with _installed(context):
    state = process.initialize()
    for number in range(1, max(_MEMORY_AT_ROUNDS) + 1):
      state = process.next(state, next(keys)).state
      if number in _MEMORY_AT_ROUNDS:
        own = psutil.Process().memory_info().rss
        others = sum(one.memory_info().rss for one in _processes())
        found[number] = [round(own / 2**20), round(others / 2**20)]
  return found


def _lose(context, process, keys, nodes, extra, kills) -> dict:
  """Disturbs rounds, and compares each with what it gives undisturbed."""
  draw = random.Random(0)
  equal, seconds = 0, []
  for number in range(kills):
    clients = next(keys)
    with _installed(context):
      state = process.initialize()
      calm = process.next(state, clients)
      timer = threading.Timer(
        draw.uniform(0.0, 1.0),
        nodes.remove_node if number == kills - 1 else _kill,
        [extra.pop()] if number == kills - 1 else [draw],
      )
      timer.start()
      began = time.perf_counter()
      disturbed = process.next(state, clients)
      seconds.append(time.perf_counter() - began)
      timer.join()
    equal += all(
      np.array_equal(a, b)
      for a, b in zip(
        tf.nest.flatten(calm), tf.nest.flatten(disturbed), strict=True
      )
    )
  return {
    'rounds': kills,
    'bit_equal': equal,
    'longest_s': round(max(seconds), 1),
    'part_timeout_s': _PART_TIMEOUT_S,
  }


def _kill(draw) -> None:
  draw.choice(_processes()).kill()


if __name__ == '__main__':
  main()
