"""Where the clients of a run keep their states, and how many are kept."""

import os
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from tff_ssl.templates import client_state


def folder(settings) -> str:
  """Returns the folder of a run's client states, an absolute path."""
  return os.path.join(os.path.abspath(settings.run_dir), 'client_states')


def make_probe(settings) -> str:
  """Writes a file to find out by whether a worker sees the folder of states.

  One that does not would let its clients begin anew in every round.

  Returns:
    The file's path.
  """
  path = os.path.join(folder(settings), 'shared_by_all_workers')
  os.makedirs(folder(settings), exist_ok=True)
  with open(path, 'wb') as file:
    file.write(b'1')
  return path


def pruner(settings, spec, manager) -> Callable[[Iterable[int]], None] | None:
  """Returns what is to be called with the participants after a checkpoint.

  It removes states that no checkpoint which is kept can lead back to.

  Args:
    settings: From `experiments.settings.make`.
    spec: The process's `ProcessSpec`.
    manager: The run's `CheckpointManager`.

  Returns:
    The function, or `None` where clients keep no state.
  """
  if not spec.keeps_client_state:
    return None

  def prune(clients):
    client_state.prune(
      folder(settings), settings.seed, clients, manager.oldest_round()
    )

  return prune


def bytes_needed(settings, spec, state, num_clients: int) -> int:
  """Returns about how much space all states take.

  Args:
    settings: From `experiments.settings.make`.
    spec: The process's `ProcessSpec`.
    state: The process's state; a client's is little more than a model.
    num_clients: K.
  """
  if not spec.keeps_client_state:
    return 0
  weights = tf.nest.flatten(state.global_model_weights)
  size = sum(np.asarray(value).nbytes for value in weights)
  # Two checkpoints are kept, and a version before the older one.
  rounds = 2 * settings.rounds_per_checkpoint
  versions = num_clients + rounds * settings.clients_per_round
  return size * max(3 * num_clients, versions)
