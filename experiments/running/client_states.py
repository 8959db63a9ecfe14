"""Where the clients of a run keep their states, which, and how many."""

import contextlib
import hashlib
import logging
import os
import pathlib
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from experiments.artifacts import checkpoints, run_folder
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


class ClientStates:
  """The files of a run's client states, and which belong to a checkpoint.

  Workers write the files and do not wait for the disk. `record` does that,
  before a checkpoint names them; `resume` checks them against a checkpoint.
  """

  def __init__(self, settings):
    """Initializes the states of a run that begins.

    Args:
      settings: From `experiments.config.settings.make`.
    """
    self._folder = pathlib.Path(folder(settings))
    self._seed = settings.seed
    # By client, its newest state: the file's name and SHA-256.
    self._known: dict[int, tuple[str, str]] = {}

  def record(
    self, round_number: int, clients: Iterable[int] | None
  ) -> dict[str, str]:
    """Brings new states to the disk.

    Args:
      round_number: Rounds done.
      clients: The participants since the last call: only their states can have
        changed. `None` for all clients.

    Returns:
      The SHA-256 of the newest state of each client, by file name.

    Raises:
      CheckpointError: If a file cannot be read, or cannot be brought to the
        disk.
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
        run_folder.sync_folder(parent)
    return dict(self._known.values())

  def resume(
    self, round_number: int, digests: Mapping[str, str] | None
  ) -> None:
    """Checks that the states are those of a checkpoint.

    Args:
      round_number: Rounds done at the checkpoint.
      digests: What `record` returned for it; `None` for a checkpoint of an
        older version of this library. Its states are used as they are, with a
        warning.

    Raises:
      UnsoundCheckpointError: If a state is missing, or is another.
      OSError: If one cannot be read.
    """
    self._known = {}
    if digests is None:
      number = len(self.record(round_number, None))
      logging.getLogger(__name__).warning(
        'The checkpoint of round %d is of an older version of tff_ssl, which '
        'kept no SHA-256 of client states: the %d states in %s are used '
        'unchecked.',
        round_number,
        number,
        self._folder,
      )
      return
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

  def prune(self, clients: Iterable[int], oldest_round: int) -> None:
    """Removes states that no checkpoint which is kept can lead back to.

    Args:
      clients: Whose states to look at.
      oldest_round: Rounds done at the oldest checkpoint that is kept.
    """
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
      f'disk: {error.strerror}. The last sound checkpoint is untouched: mend '
      'the disk and start again to continue.'
    ) from error


def _sha256(file) -> str:
  return hashlib.file_digest(file, 'sha256').hexdigest()


def of_run(settings, spec) -> ClientStates | None:
  """Returns the client states of a run, `None` where clients keep none.

  Args:
    settings: From `experiments.config.settings.make`.
    spec: The process's `ProcessSpec`.
  """
  return ClientStates(settings) if spec.keeps_client_state else None


def bytes_needed(settings, spec, state, num_clients: int) -> int:
  """Returns about how much space all states take.

  Args:
    settings: From `experiments.config.settings.make`.
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
