"""The checkpoints of a run: the process's state and all that belongs to it.

With `--on_collapse=rewind`, a run that collapses in round n goes back to the
checkpoint of the last round that was found sound, r. Rounds r + 1 to n are
repeated without clients: the server alone trains. From round n + 1 on, clients
take part again. So a run never goes back behind a round in which it went back
before, and it ends.

Each checkpoint holds the list of these pauses, so that a run that is stopped or
killed goes on as one that was not: where the process ends between going back
and the next checkpoint, the rounds that were dropped are trained, collapse and
are dropped once more.
"""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from experiments.artifacts import checkpoints, csv_files
from experiments.measuring.evaluation import FinishedRound
from experiments.running import classifiers, participants
from experiments.running.client_state_files import ClientStateFiles

# Beside the state in a checkpoint.
_REWINDS = 'rewinds.json'
_TABLES = 'tables.json'


@dataclasses.dataclass
class Rewinds:
  """When clients pause, and where a collapse leads back to.

  Attributes:
    pauses: Of each time that the run went back, the sound round r and the round
      n of the collapse. Clients pause in the rounds after r up to n.
    sound_round: The newest round whose pseudo-labels were found sound; 0 at the
      start; `None` where the run has not noted any.
  """

  pauses: list[tuple[int, int]] = dataclasses.field(default_factory=list)
  sound_round: int | None = 0

  @classmethod
  def unpack(cls, content: bytes | None) -> 'Rewinds':
    """Returns what a checkpoint says, which may hold no such file."""
    if content is None:
      return cls(sound_round=None)
    values = json.loads(content)
    return cls(
      [tuple(pause) for pause in values['pauses']], values['sound_round']
    )

  def pack(self) -> bytes:
    """Returns the content of the file beside a checkpoint's state."""
    return json.dumps(dataclasses.asdict(self)).encode()

  def is_paused(self, round_number: int) -> bool:
    """Returns whether clients pause in a round, 1 for the first."""
    return any(r < round_number <= n for r, n in self.pauses)

  def note(self, round_number: int, row: dict[str, object]) -> None:
    """Notes whether a finished round is sound, where its row says so."""
    if row.get('is_collapsing') == 0:
      self.sound_round = round_number

  def go_back(self, round_number: int) -> int:
    """Notes a collapse in a round, and returns the round to go back to."""
    self.pauses.append((self.sound_round, round_number))
    return self.sound_round


class RunCheckpoints:
  """Saves and restores state, classifier and the clients' states together.

  Attributes:
    rewinds: When clients pause, as of the newest checkpoint.
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
    """
    self._manager = manager
    self._client_states = client_states
    self._classifier = classifier
    self._keeps_sound = on_collapse in ('stop', 'rewind')
    self._leaves_collapsed = on_collapse == 'rewind'
    self.rewinds = Rewinds()
    self.participation = participants.Participation()
    self.digests: dict[str, str] = {}
    self.log: csv_files.MetricLog | None = None

  def load_latest(self) -> tuple[int, Any] | None:
    """Returns the rounds done and the state of the newest sound checkpoint."""
    states = self._client_states
    loaded = self._manager.load_latest(
      None if states is None else states.resume
    )
    self.participation = participants.Participation()
    self.digests = {}
    if loaded is None:
      return None
    round_number, state, files = loaded
    try:
      self.participation = participants.Participation.unpack(
        files[participants.FILE]
      )
      self.rewinds = Rewinds.unpack(files.get(_REWINDS))
      self.digests = dict(json.loads(files.get(_TABLES, '{}')))
    # Their SHA-256 is right, but no run wrote them.
    except (EOFError, LookupError, TypeError, ValueError) as error:
      raise checkpoints.CheckpointError(
        f'The checkpoint of round {round_number} is not as a run writes it '
        f'({error!r}): restore it from a copy, or choose another run folder.'
      ) from error
    self._pin()
    return round_number, state

  def finish_pruning(self) -> None:
    """Deletes what a run that was killed while it pruned has left."""
    self._manager.prune()
    self._prune_states(None)

  def _prune_states(self, clients: Iterable[int] | None) -> None:
    if self._client_states is not None:
      self._client_states.prune(clients, self._manager.oldest_round())

  def go_back(
    self, collapsed: FinishedRound, initial_state: Any
  ) -> tuple[int, Any]:
    """Goes back to the last sound round; clients pause until after this one.

    Returns the rounds done, and the state after them.
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
    """Returns whether a round gets a checkpoint whatever the intervals are."""
    is_collapsing = finished.row.get('is_collapsing')
    return bool(is_collapsing) or (
      self._keeps_sound and is_collapsing is not None
    )

  def _pin(self) -> None:
    if self._keeps_sound:
      self._manager.pinned = self.rewinds.sound_round

  def save(self, finished: FinishedRound, participating: Iterable[int]) -> None:
    """Saves a checkpoint, then deletes files that no checkpoint needs.

    `participating` are all clients that took part since the checkpoint before.
    With `on_collapse='rewind'`, a round that collapses is not saved.
    """
    if self._leaves_collapsed and finished.row.get('is_collapsing'):
      return
    files = {participants.FILE: self.participation.pack()}
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
      files[_REWINDS] = self.rewinds.pack()
    client_states = None
    if self._client_states is not None:
      # On the disk before the checkpoint that names them.
      client_states = self._client_states.record(finished.number, participating)
    self._manager.save(
      finished.number,
      finished.state,
      client_states=client_states,
      files=files,
    )
    self._prune_states(participating)
