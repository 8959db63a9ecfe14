"""The checkpoints of a run: the process's state and all that belongs to it."""

import json
from collections.abc import Iterable
from typing import Any

from experiments.artifacts import checkpoints, metric_log
from experiments.measuring.finished_round import FinishedRound
from experiments.running import classifiers
from experiments.running import participation as participation_lib
from experiments.running import rewinds as rewinds_lib
from experiments.running.client_state_files import ClientStateFiles

_TABLES = 'tables.json'


class RunCheckpoints:
  """Saves and restores state, classifier and the clients' states together."""

  def __init__(
    self,
    manager: checkpoints.CheckpointManager,
    *,
    client_states: ClientStateFiles | None = None,
    classifier: classifiers.Description | None = None,
    on_collapse: str = 'warn',
  ):
    """Initializes the checkpoints.

    Args:
      manager: Writes the checkpoints.
      client_states: The states of the clients; `None` where they keep none.
      classifier: Description of the classifier that each checkpoint holds, or
        `None` for checkpoints without one.
      on_collapse: The setting. With 'stop' and 'rewind' the checkpoint of the
        last round that was found sound is kept, for `go_back`. With 'rewind' a
        round that collapses has none: a run that ends before it has gone back
        repeats that round, and goes back then.

    Attributes:
      rewinds: When clients pause, as of the newest checkpoint.
      participation: Who has taken part.
      digests: Of the tables of the run, as `MetricLog.digests` gives them, of
        the checkpoint that was loaded.
      log: The run's metrics, whose digests a checkpoint keeps.
    """
    self._manager = manager
    self._client_states = client_states
    self._classifier = classifier
    self._keeps_sound = on_collapse in ('stop', 'rewind')
    self._leaves_collapsed = on_collapse == 'rewind'
    self.rewinds = rewinds_lib.Rewinds()
    self.participation = participation_lib.Participation()
    self.digests: dict[str, str] = {}
    self.log: metric_log.MetricLog | None = None

  def load_latest(self) -> tuple[int, Any] | None:
    """Returns the rounds done and the state of the newest sound checkpoint.

    Raises:
      CheckpointError: As in `CheckpointManager.load_latest`.
    """
    states = self._client_states
    loaded = self._manager.load_latest(
      None if states is None else states.resume
    )
    self.participation = participation_lib.Participation()
    self.digests = {}
    if loaded is not None:
      self.participation = participation_lib.Participation.unpack(
        self._manager.file_of_loaded(participation_lib.FILE)
      )
      self.rewinds = rewinds_lib.Rewinds.unpack(
        self._manager.file_of_loaded(rewinds_lib.FILE)
      )
      self.digests = json.loads(self._manager.file_of_loaded(_TABLES) or '{}')
      self._pin()
    return loaded

  def finish_pruning(self) -> None:
    """Deletes what a run that was killed while it pruned has left.

    Raises:
      CheckpointError: If something cannot be deleted.
    """
    self._manager.prune()
    self._prune_states(None)

  def _prune_states(self, clients: Iterable[int] | None) -> None:
    if self._client_states is not None:
      self._client_states.prune(clients, self._manager.oldest_round())

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
    sound = rewinds.sound_round
    if sound and not self._manager.is_sound(sound):
      raise checkpoints.CheckpointError(
        f'The checkpoint of round {sound}, the last before the collapse of '
        f'round {collapsed.number}, is missing or damaged: restore it from a '
        'copy, or start anew in another folder.'
      )
    rewinds.go_back(collapsed.number)
    self._manager.drop_after(sound)
    number, state = self.load_latest() or (0, initial_state)
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

    With `on_collapse='rewind'`, a round that collapses is not saved.

    Args:
      finished: The last round.
      participants: All clients that took part since the checkpoint before.

    Raises:
      CheckpointError: If it cannot be written.
    """
    if self._leaves_collapsed and finished.row.get('is_collapsing'):
      return
    more = {}
    files = {participation_lib.FILE: self.participation.pack()}
    if self._classifier is not None:
      files[classifiers.FILE] = classifiers.pack(
        self._classifier, finished.weights
      )
    if self._keeps_sound:
      self.rewinds.note(finished.number, finished.row)
      self._pin()
    else:  # Nothing keeps that checkpoint.
      self.rewinds.sound_round = None
    if self.log is not None:
      digests = self.log.digests(finished.number)
      files[_TABLES] = json.dumps(digests).encode()
    if self._keeps_sound or self.rewinds.pauses:
      files[rewinds_lib.FILE] = self.rewinds.pack()
    more['files'] = files
    states = self._client_states
    # On the disk before the checkpoint that names them.
    if states is not None:
      more['client_states'] = states.record(finished.number, participants)
    self._manager.save(finished.number, finished.state, **more)
    self._prune_states(participants)
