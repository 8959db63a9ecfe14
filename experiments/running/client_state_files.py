"""The files in which the clients of a run keep their states.

`tff_ssl.templates.client_state` reads and writes one client's state inside a
round. This module ties the files of all clients to the checkpoints of a run.
"""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from experiments.artifacts import checkpoints, durable_files
from tff_ssl.templates import client_state


class ClientStateFiles:
  """The files of a run's client states, and which belong to a checkpoint.

  Workers write the files without waiting until they are on the disk.
  """

  def __init__(self, states: str, seed: int):
    """Takes the folder of the states, from `run_folder.client_states`."""
    self._folder = pathlib.Path(states)
    self._seed = seed
    # By client, its newest state: the file's name and SHA-256.
    self._known: dict[int, tuple[str, str]] = {}

  def record(self, round_number: int, clients: Iterable[int]) -> dict[str, str]:
    """Waits for the disk; returns the SHA-256 of the newest states, by file.

    `clients` took part since the last call: no other state can have changed.
    """
    changed = set()
    for client, path in self._newest(round_number, clients).items():
      name = self._name(path)
      known, _ = self._known.get(client, ('', ''))
      if name <= known:  # This client was left out of all its rounds.
        continue
      with _explaining(path), path.open('rb') as file:
        os.fsync(file.fileno())
        self._known[client] = name, _sha256(file)
      # The folders of the client, of the seed, of all states and of the run:
      # each of them may have a new entry.
      changed.update(path.parents[:4])
    for parent in changed:
      with _explaining(parent):
        durable_files.sync_folder(parent)
    return dict(self._known.values())

  def resume(
    self, round_number: int, digests: Mapping[str, str] | None
  ) -> None:
    """Checks that the states are those of a checkpoint.

    `digests` is what `record` returned for it, `None` if it names no states. If
    one is missing or differs, the checkpoint is not sound.
    """
    self._known = {}
    if digests is None:
      raise checkpoints.UnsoundCheckpointError('it names no client states')
    missing = [
      f'{self._folder / name} is missing'
      for name in digests
      if not (self._folder / name).is_file()
    ]
    changed, foreign = [], []
    for client, path in self._newest(round_number).items():
      name = self._name(path)
      if name not in digests:
        foreign.append(f'{path} does not belong to it')
        continue
      with path.open('rb') as file:
        self._known[client] = name, _sha256(file)
      if self._known[client][1] != digests[name]:
        changed.append(f'{path} does not match its SHA-256')
    # Where a client's newest state is missing, an older one is found.
    if faults := missing + changed or foreign:
      number = f' (1 of {len(faults)} such files)' if faults[1:] else ''
      raise checkpoints.UnsoundCheckpointError(f'{faults[0]}{number}')

  def prune(self, clients: Iterable[int] | None, oldest_round: int) -> None:
    """Deletes states of clients, `None` for all, that no checkpoint needs."""
    clients = self._known if clients is None else clients
    with _explaining(self._folder):
      client_state.prune(self._folder, self._seed, clients, oldest_round)

  def _newest(self, round_number, clients=None):
    return client_state.newest(self._folder, self._seed, round_number, clients)

  def _name(self, path):
    return path.relative_to(self._folder).as_posix()


@contextlib.contextmanager
def _explaining(path):
  try:
    yield
  except OSError as error:
    raise checkpoints.CheckpointError(
      f'The client states of this round, {path}, cannot be brought to the '
      f'disk, or old ones be removed: {error.strerror}. The last sound '
      'checkpoint is untouched: mend the disk and start again to continue.'
    ) from error


def _sha256(file) -> str:
  return hashlib.file_digest(file, 'sha256').hexdigest()


def bytes_needed(
  state,
  *,
  models_in_state: int,
  num_clients: int,
  clients_per_round: int,
  rounds_per_checkpoint: int,
) -> int:
  """Returns about how many bytes the states of all clients take.

  A client's state is as large as `models_in_state` models.
  """
  weights = tf.nest.flatten(state.global_model_weights)
  model = sum(np.asarray(value).nbytes for value in weights)
  # Two checkpoints are kept, and a version before the older one.
  rounds = 2 * rounds_per_checkpoint
  versions = num_clients + rounds * clients_per_round
  return models_in_state * model * max(3 * num_clients, versions)
