"""What FedUL's transition layer costs a client.

A supervised client against one of FedUL that takes its labels for the indices
of sets: same network, data, steps and optimizer, so that the difference is the
layer and its loss.
"""

import collections
import dataclasses

import numpy as np
import tensorflow_federated as tff

from benchmarks import candidates, measurement, workloads
from datasets import client_store
from tff_ssl import augmentation, models
from tff_ssl.algorithms import PROCESSES

_MODEL = 'small_cnn'
_LEARNING_RATE = 1e-4


@dataclasses.dataclass(frozen=True)
class FedUL:
  """The sizes of a round; by default, the paper's minibatch and most sets.

  Attributes:
    clients: C = K, all clients take part.
    steps: T, one pass over a client's examples.
    batch_size: B, examples in a minibatch.
    sets: M, at least as many as classes.
  """

  clients: int = 2
  steps: int = 8
  batch_size: int = 128
  sets: int = 40


WORKLOAD = FedUL()


def build_all(workload: FedUL, folder: str) -> dict[str, candidates.Round]:
  """Returns the candidates by name: `supervised` and `fedul`.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
  """
  store = workloads.build_store(
    workload.clients, workload.steps * workload.batch_size, folder
  )

  def rounds(name, constants=None, **settings):
    def build(data_spec):
      return PROCESSES[name].build(
        models.build(
          _MODEL, workloads.INPUT_SHAPE, workloads.NUM_CLASSES, 'none'
        ),
        data_spec=data_spec,
        views=augmentation.PlainViews(),
        client_optimizer=tff.learning.optimizers.build_adam(_LEARNING_RATE),
        batch_size=workload.batch_size,
        local_epochs=1,
        **settings,
      )

    return candidates.rounds_over_store(
      build, store, workload.clients, constants
    )

  return {
    'supervised': rounds('fedavg'),
    'fedul': rounds('fedul', _constants(workload, store), l1_weight=0.0),
  }


def compare(workload: FedUL, folder: str, repetitions: int) -> dict:
  """Compares both candidates.

  Args:
    workload: The sizes.
    folder: Where the client store goes.
    repetitions: Timed rounds of each candidate.

  Returns:
    The sizes; times as `measurement.compare` has them; and
    `fedul_over_supervised`, the ratio of the best rounds.
  """
  seconds = measurement.time_rounds(build_all(workload, folder), repetitions)
  ratio = min(seconds['fedul']) / min(seconds['supervised'])
  return {
    **dataclasses.asdict(workload),
    **measurement.per_client(seconds, workload.clients),
    'fedul_over_supervised': round(ratio, 3),
  }


def _constants(workload, store: client_store.ClientStore):
  """Returns random class priors, and shares that give each set examples."""
  rng = np.random.default_rng(0)
  priors = rng.dirichlet(np.ones(workloads.NUM_CLASSES), workload.sets)
  shares = np.full((store.num_clients, workload.sets), 1 / workload.sets)
  return collections.OrderedDict(
    class_priors=np.tile(priors, (store.num_clients, 1, 1)).astype(np.float32),
    set_shares=shares.astype(np.float32),
  )
