"""The checkpoints of a run: the process's state and all that belongs to it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from experiments.artifacts import checkpoints, csv_files
from experiments.measuring.evaluation import FinishedRound
from experiments.running import classifiers, participants
from experiments.running.client_state_files import ClientStateFiles

# Beside the state in a checkpoint: what a resumed run has to know.
_FILE = 'run.json'


class RunCheckpoints:
  """Saves and restores state, classifier and the clients' states together.

  Attributes:
    participation: Who has taken part.
    digests: What `MetricLog.digests` gave for the checkpoint that was loaded.
    log: The run's metrics, whose digests a checkpoint keeps.
  """

  def __init__(
    self,
    manager: checkpoints.CheckpointManager,
    *,
    client_states: ClientStateFiles | None = None,
    classifier: classifiers.Description | None = None,
  ):
    """Initializes the checkpoints; clients may keep no states.

    Without the description of a classifier, they hold none.
    """
    self._manager = manager
    self._client_states = client_states
    self._classifier = classifier
    self.participation = participants.Participation()
    self.digests: dict[str, str] = {}
    self.log: csv_files.MetricLog | None = None

  def load_latest(self) -> tuple[int, Any] | None:
    """Returns the rounds done and the state of the newest sound checkpoint."""
    loaded = self._manager.load_latest(self._take_over)
    return None if loaded is None else loaded[:2]

  def _take_over(self, round_number: int, files: Mapping[str, bytes]) -> None:
    """Takes over what a checkpoint says of the run, where that is sound."""
    try:
      said = json.loads(files[_FILE])
      table = np.array(said['participation'], np.int64).astype(np.int32)
      # NumPy cuts in silence what does not fit.
      if table.tolist() != said['participation']:
        raise ValueError('participation that no run counts')
      self.participation = participants.Participation(table)
      self.digests = dict(said['tables'])
      states = said['client_states']
      states = None if states is None else dict(states)
    # Its SHA-256 is right, but no run wrote it.
    except (
      *(LookupError, TypeError, ValueError, OverflowError),
      RecursionError,  # Lists in lists, a thousand deep.
    ) as error:
      raise checkpoints.UnsoundCheckpointError(
        f'its {_FILE} is not as a run writes it ({error!r})'
      ) from error
    if self._client_states is not None:
      self._client_states.resume(round_number, states)

  def finish_pruning(self) -> None:
    """Deletes what a run that was killed while it pruned has left."""
    self._manager.prune()
    self._prune_states(None)

  def _prune_states(self, clients: Iterable[int] | None) -> None:
    if self._client_states is not None:
      self._client_states.prune(clients, self._manager.oldest_round())

  def save(self, finished: FinishedRound, participating: Iterable[int]) -> None:
    """Saves a checkpoint, then deletes files that no checkpoint needs.

    `participating` are all clients that took part since the checkpoint before.
    """
    said = {
      'participation': self.participation.table.tolist(),
      'tables': {},
      'client_states': None,
    }
    if self.log is not None:
      said['tables'] = self.log.digests(finished.number)
    if self._client_states is not None:
      # On the disk before the checkpoint that names them.
      said['client_states'] = self._client_states.record(
        finished.number, participating
      )
    files = {_FILE: json.dumps(said, sort_keys=True).encode()}
    if self._classifier is not None:
      files[classifiers.FILE] = classifiers.pack(
        self._classifier, finished.weights
      )
    self._manager.save(finished.number, finished.state, files)
    self._prune_states(participating)
