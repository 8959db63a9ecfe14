"""Bytes of messages against counts by hand."""

import costs
import numpy as np
import pytest

from tff_ssl import algorithms, metrics, testing

# 64-24-10: kernels and biases, 4 bytes each.
_MODEL = 4 * (64 * 24 + 24 + 24 * 10 + 10)
_DECODER = 4 * (24 * 64 + 64)
_ROUND_AND_SEED = 2 * 4
_HPARAMS = 3 * 4
_COUNTS_OF_CLIENTS = 4 * 4
# Passes, and examples.
_COUNTS_OF_WORK = 3 * 8


@pytest.mark.parametrize(
  'name, weights, up_besides',
  costs.rest_in(
    'parts',
    [
      # A weight; loss and accuracy, each a numerator and a denominator.
      ('fedavg', _MODEL, 4 + 2 * 8),
      # Two group models; a weight for each and one for all; three metrics.
      ('grouping', 2 * _MODEL, 2 * 4 + 4 + 3 * 8),
      ('ssjo', _MODEL + _DECODER, 4 + 3 * 8),
    ],
  ),
)
def test_bytes_are_those_of_weights_and_little_more(
  name, weights, up_besides, tff_context
):
  problem = testing.TinyProblem(algorithms.PROCESSES[name])
  measured = metrics.measure_communication(problem.process)
  assert measured.down == weights + _ROUND_AND_SEED + _HPARAMS
  counts = _COUNTS_OF_CLIENTS + _COUNTS_OF_WORK
  assert measured.up == weights + up_besides + counts


def test_the_size_of_a_model_is_that_of_its_arrays(tff_context):
  weights = (
    testing.TinyProblem(algorithms.PROCESSES['fedavg'])
    .build_model()
    .initial_weights(0)
  )
  assert sum(np.asarray(w).nbytes for w in weights.trainable) == _MODEL
