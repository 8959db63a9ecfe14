"""What oneDNN's kernels are worth on this processor.

Rounds of supervised FedAvg with workers that have the kernels
(`use_onednn=True`, the default) and with workers that do not. Where TensorFlow
takes them by itself, the latter is slower than what TensorFlow's users have.
"""

import dataclasses
import os
from unittest import mock

from benchmarks import candidates, measurement, workloads
from tff_ssl import augmentation, optimizers
from tff_ssl.algorithms import PROCESSES

_MODELS = ('small_cnn', 'emnist_cnn')
_WITH, _WITHOUT = 'onednn', 'without'

WORKLOAD = workloads.Steps()


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
  store = workload.build_store(folder)

  def rounds(model, variable):
    def build(data_spec):
      return PROCESSES['fedavg'].build(
        workloads.build_model(model),
        data_spec=data_spec,
        views=augmentation.PlainViews(),
        client_optimizer=optimizers.build_grouping_sgd(workloads.LEARNING_RATE),
        batch_size=workload.batch_size,
        local_steps=workload.steps,
      )

    # The worker that starts here inherits it.
    with mock.patch.dict(os.environ, TF_ENABLE_ONEDNN_OPTS=variable):
      return candidates.rounds_over_store(build, store, workload.clients)

  seconds = measurement.time_rounds(
    {
      f'{model}_{name}': rounds(model, variable)
      for model in _MODELS
      for name, variable in ((_WITH, '1'), (_WITHOUT, '0'))
    },
    repetitions,
  )
  best = {name: min(values) for name, values in seconds.items()}
  return {
    **dataclasses.asdict(workload),
    **measurement.per_client(seconds, workload.clients),
    **{
      f'{model}_ratio': round(
        best[f'{model}_{_WITH}'] / best[f'{model}_{_WITHOUT}'], 3
      )
      for model in _MODELS
    },
  }
