"""What it costs a client to keep a model of its own, beside FedAvg's.

A client of `easgd` or `overlap_sgd` trains as one of `fedavg` does, with the
same network, data, steps and optimizer. It also reads its model and momentum
from its disk, pulls the model, and writes both; what it wrote before is removed
once nobody needs it, as in a run. The network is the EMNIST one, the larger of
those that are measured: what is written grows with the weights.
"""

import itertools

from benchmarks import candidates, measurement, workloads
from tff_ssl import optimizers
from tff_ssl.algorithms import PROCESSES
from tff_ssl.templates import client_state

_MODEL = 'emnist_cnn'
_NAMES = ('easgd', 'overlap_sgd')


WORKLOAD = workloads.Steps()


def build_all(
  workload: workloads.Steps, folder: str
) -> dict[str, candidates.Round]:
  """Returns the candidates by name: `fedavg`, `easgd` and `overlap_sgd`.

  Args:
    workload: The sizes.
    folder: Where the client store and the clients' states go.
  """
  store = workload.build_store(folder)

  def rounds(name):
    spec, states = PROCESSES[name], f'{folder}/{name}'
    more = {}
    if spec.takes('client_state_dir'):
      more['client_state_dir'] = states
    if spec.takes('num_clients'):
      more['num_clients'] = workload.clients

    run_round = candidates.rounds_of(
      name,
      _MODEL,
      workload,
      store,
      client_optimizer=optimizers.build_grouping_sgd(workloads.LEARNING_RATE),
      **more,
    )
    if not spec.takes('client_state_dir'):
      return run_round
    done = itertools.count(1)

    def run_and_prune():
      run_round()
      client_state.prune(states, 0, range(workload.clients), next(done))

    return run_and_prune

  return {name: rounds(name) for name in ('fedavg', *_NAMES)}


def compare(workload: workloads.Steps, folder: str, repetitions: int) -> dict:
  """Compares the candidates.

  Args:
    workload: The sizes.
    folder: Where the client store and the clients' states go.
    repetitions: Timed rounds of each candidate.

  Returns:
    The sizes; times as `measurement.compare` has them; and
    `easgd_over_fedavg` and `overlap_sgd_over_fedavg`, the ratios of the best
    rounds.
  """
  return measurement.compare_steps(
    workload,
    build_all(workload, folder),
    repetitions,
    {f'{name}_over_fedavg': (name, 'fedavg') for name in _NAMES},
  )
