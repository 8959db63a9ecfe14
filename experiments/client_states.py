"""Where the clients of a run keep their states, and how many are kept."""

import os
from collections.abc import Callable, Iterable

from tff_ssl.templates import client_state


def folder(settings) -> str:
  """Returns the folder of a run's client states, an absolute path."""
  return os.path.join(os.path.abspath(settings.run_dir), 'client_states')


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


def bytes_needed(spec, weights_bytes: int, num_clients: int) -> int:
  """Returns a bound on the space of all states.

  Args:
    spec: The process's `ProcessSpec`.
    weights_bytes: Size of the model's weights; a state is little more.
    num_clients: K.
  """
  # Two checkpoints are kept, and a version before the older one.
  return 3 * weights_bytes * num_clients if spec.keeps_client_state else 0
