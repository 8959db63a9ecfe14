"""The checkpoints of a run: the process's state and all that belongs to it."""

from collections.abc import Iterable
from typing import Any

from experiments.artifacts import checkpoints
from experiments.measuring.finished_round import FinishedRound
from experiments.running import classifiers
from experiments.running import rewinds as rewinds_lib
from experiments.running.client_state_files import ClientStateFiles


class RunCheckpoints:
  """Saves and restores state, classifier and the clients' states together."""

  def __init__(
    self,
    manager: checkpoints.CheckpointManager,
    *,
    client_states: ClientStateFiles | None = None,
    classifier: classifiers.Description | None = None,
    keeps_sound: bool = False,
  ):
    """Initializes the checkpoints.

    Args:
      manager: Writes the checkpoints.
      client_states: The states of the clients; `None` where they keep none.
      classifier: Description of the classifier that each checkpoint holds, or
        `None` for checkpoints without one.
      keeps_sound: Whether the checkpoint of the last round that was found sound
        is kept, for `go_back`.

    Attributes:
      rewinds: When clients pause, as of the newest checkpoint.
    """
    self._manager = manager
    self._client_states = client_states
    self._classifier = classifier
    self._keeps_sound = keeps_sound
    self.rewinds = rewinds_lib.Rewinds()

  def load_latest(self) -> tuple[int, Any] | None:
    """Returns the rounds done and the state of the newest sound checkpoint.

    Raises:
      CheckpointError: As in `CheckpointManager.load_latest`.
    """
    states = self._client_states
    loaded = self._manager.load_latest(
      None if states is None else states.resume
    )
    if loaded is not None:
      self.rewinds = rewinds_lib.Rewinds.unpack(
        self._manager.file_of_loaded(rewinds_lib.FILE)
      )
      self._pin()
    return loaded

  def go_back(
    self, collapsed: FinishedRound, initial_state: Any
  ) -> tuple[int, Any]:
    """Goes back to the last sound round; clients pause until after this one.

    Args:
      collapsed: The round of the collapse.
      initial_state: The state before the first round.

    Returns:
      Rounds done, and the state after them.

    Raises:
      CheckpointError: If there is no sound round to go back to, or the
        checkpoints cannot be read or written.
    """
    rewinds = self.rewinds
    if rewinds.sound_round is None:
      raise checkpoints.CheckpointError(
        f'Round {collapsed.number} collapses, and the run has no checkpoint '
        'from before it: with --on_collapse=rewind from its first round, a run '
        'keeps one. Start it anew in another folder.'
      )
    sound = rewinds.go_back(collapsed.number)
    self._manager.drop_after(sound)
    number, state = self.load_latest() or (0, initial_state)
    if number != sound:
      raise checkpoints.CheckpointError(
        f'The checkpoint of round {sound}, the last before the collapse of '
        f'round {collapsed.number}, is damaged: restore it from a copy, or '
        'start anew in another folder.'
      )
    self.rewinds = rewinds
    self.save(collapsed.at(number, state), ())
    return number, state

  def must_keep(self, finished: FinishedRound) -> bool:
    """Returns whether a round gets a checkpoint whatever the intervals are.

    Args:
      finished: The round, with its metrics.
    """
    is_collapsing = finished.row.get('is_collapsing')
    return bool(is_collapsing) or (
      self._keeps_sound and is_collapsing is not None
    )

  def _pin(self) -> None:
    if self._keeps_sound:
      self._manager.pin(self.rewinds.sound_round)

  def save(self, finished: FinishedRound, participants: Iterable[int]) -> None:
    """Saves a checkpoint, then deletes files that no checkpoint needs.

    Args:
      finished: The last round.
      participants: All clients that took part since the checkpoint before.

    Raises:
      CheckpointError: If it cannot be written.
    """
    more, files = {}, {}
    if self._classifier is not None:
      files[classifiers.FILE] = classifiers.pack(
        self._classifier, finished.weights
      )
    if self._keeps_sound:
      self.rewinds.note(finished.number, finished.row)
      self._pin()
    if self._keeps_sound or self.rewinds.pauses:
      files[rewinds_lib.FILE] = self.rewinds.pack()
    if files:
      more['files'] = files
    states = self._client_states
    # On the disk before the checkpoint that names them.
    if states is not None:
      more['client_states'] = states.record(finished.number, participants)
    self._manager.save(finished.number, finished.state, **more)
    if states is not None:
      states.prune(participants, self._manager.oldest_round())
