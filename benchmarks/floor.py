"""How far a client's steps are from the matrix products that they consist of.

The floor of a network is the time of its products alone, on one core: of each
layer's outputs, and of the gradients of its weights and of its inputs. NumPy
multiplies them. A convolution counts as the product of its patches, which lie
there already.
"""

import functools
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
import threadpoolctl

from benchmarks import candidates, workloads

_REPETITIONS = 5


def compare(folder: str, repetitions: int) -> dict:
  """Compares CPU seconds of a client with its floor.

  Args:
    folder: Where the client stores go.
    repetitions: Timed rounds of each network.

  Returns:
    For each network, milliseconds of one core for a client, of its floor, and
    the ratio; the best repetition of each.
  """
  found = {}
  for name, workload in workloads.WORKLOADS.items():
    store = workloads.build_store(workload.clients, workload.examples, folder)
    run_round = candidates.build_ours(workload, store)
    run_round()
    ours = _best(run_round, repetitions, time.process_time) / workload.clients
    floor = workload.steps * _floor(workload)
    found |= {
      f'{name}_cpu_ms': round(1000 * ours, 2),
      f'{name}_floor_ms': round(1000 * floor, 2),
      f'{name}_over_floor': round(ours / floor, 2),
    }
  return found


def _floor(workload: workloads.Workload) -> float:
  """Returns the seconds of the products of a step."""
  draw = np.random.default_rng(0).random
  total = 0.0
  with threadpoolctl.threadpool_limits(1):
    for index, (m, k, n) in enumerate(_products(workload)):
      a, b, c = (draw(size, np.float32) for size in ((m, k), (k, n), (m, n)))
      # Nobody needs the gradient of the images.
      pairs = [(a, b), (a.T, c), (c, b.T)][: 3 if index else 2]
      for pair in pairs:
        multiply = functools.partial(np.matmul, *pair)
        total += _best(multiply, _REPETITIONS, time.thread_time)
  return total


def _products(workload: workloads.Workload) -> Iterator[tuple[int, int, int]]:
  """Yields rows, inner and columns of each layer's product."""
  for layer in workload.build_model().layers:
    if isinstance(layer, tf.keras.layers.Dense):
      yield workload.batch_size, *layer.kernel.shape
    elif isinstance(layer, tf.keras.layers.Conv2D):
      *patch, filters = layer.kernel.shape
      places = np.prod(layer.output_shape[1:3])
      yield int(workload.batch_size * places), int(np.prod(patch)), filters


def _best(function: Callable, repetitions: int, clock: Callable) -> float:
  seconds = []
  for _ in range(repetitions):
    began = clock()
    function()
    seconds.append(clock() - began)
  return min(seconds)
