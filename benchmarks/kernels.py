"""What oneDNN's kernels are worth on this processor.

Rounds of supervised FedAvg in workers of TFF that have the kernels and in
workers that do not. Where TensorFlow takes them by itself, the latter is slower
than what TensorFlow's users have.
"""

import os
from unittest import mock

from benchmarks import candidates, measurement, workloads
from tff_ssl import optimizers
from tff_ssl.simulation import contexts

_MODELS = ('small_cnn', 'emnist_cnn')
_WITH, _WITHOUT = 'onednn', 'without'

WORKLOAD = workloads.Steps()


def build_all(
  workload: workloads.Steps, folder: str
) -> dict[str, candidates.Round]:
  """Returns the candidates by name: each network, with and without.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
  """
  store = workload.build_store(folder)

  def rounds(model, variable):
    # The worker that starts here inherits it.
    with mock.patch.dict(os.environ, TF_ENABLE_ONEDNN_OPTS=variable):
      return candidates.rounds_of(
        'fedavg',
        model,
        workload,
        store,
        contexts.WORKER,
        client_optimizer=optimizers.build_grouping_sgd(workloads.LEARNING_RATE),
      )

  return {
    f'{model}_{name}': rounds(model, variable)
    for model in _MODELS
    for name, variable in ((_WITH, '1'), (_WITHOUT, '0'))
  }


def compare(workload: workloads.Steps, folder: str, repetitions: int) -> dict:
  """Compares rounds with and without the kernels.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
    repetitions: Timed rounds of each candidate.

  Returns:
    The sizes; times as `measurement.compare` has them; and for each network the
    ratio of the best rounds, with the kernels to without them.
  """
  return measurement.compare_steps(
    workload,
    build_all(workload, folder),
    repetitions,
    {
      f'{model}_ratio': (f'{model}_{_WITH}', f'{model}_{_WITHOUT}')
      for model in _MODELS
    },
  )
