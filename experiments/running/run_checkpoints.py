"""The checkpoints of a run: the process's state and all that belongs to it."""

from collections.abc import Iterable
from typing import Any

from experiments.artifacts import checkpoints
from experiments.measuring.finished_round import FinishedRound
from experiments.running import classifiers
from experiments.running.client_state_files import ClientStateFiles


class RunCheckpoints:
  """Saves and restores state, classifier and the clients' states together."""

  def __init__(
    self,
    manager: checkpoints.CheckpointManager,
    *,
    client_states: ClientStateFiles | None = None,
    classifier: classifiers.Description | None = None,
  ):
    """Initializes the checkpoints.

    Args:
      manager: Writes the checkpoints.
      client_states: The states of the clients; `None` where they keep none.
      classifier: Description of the classifier that each checkpoint holds, or
        `None` for checkpoints without one.
    """
    self._manager = manager
    self._client_states = client_states
    self._classifier = classifier

  def load_latest(self) -> tuple[int, Any] | None:
    """Returns the rounds done and the state of the newest sound checkpoint.

    Raises:
      CheckpointError: As in `CheckpointManager.load_latest`.
    """
    states = self._client_states
    return self._manager.load_latest(None if states is None else states.resume)

  def save(self, finished: FinishedRound, participants: Iterable[int]) -> None:
    """Saves a checkpoint, then deletes files that no checkpoint needs.

    Args:
      finished: The last round.
      participants: All clients that took part since the checkpoint before.

    Raises:
      CheckpointError: If it cannot be written.
    """
    more = {}
    if self._classifier is not None:
      more['files'] = {
        classifiers.FILE: classifiers.pack(self._classifier, finished.weights)
      }
    states = self._client_states
    # On the disk before the checkpoint that names them.
    if states is not None:
      more['client_states'] = states.record(finished.number, participants)
    self._manager.save(finished.number, finished.state, **more)
    if states is not None:
      states.prune(participants, self._manager.oldest_round())
