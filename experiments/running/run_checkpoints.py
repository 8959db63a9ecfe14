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
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from experiments.artifacts import checkpoints, csv_files
from experiments.measuring.evaluation import FinishedRound
from experiments.running import classifiers, participants
from experiments.running.client_state_files import ClientStateFiles

# Beside the state in a checkpoint: what a resumed run has to know.
_FILE = 'run.json'


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
    """Initializes the checkpoints; clients may keep no states.

    With `on_collapse` 'stop' and 'rewind' the checkpoint of the last round that
    was found sound is kept, for `go_back`. With 'rewind' a round that collapses
    has none: a run that ends before it has gone back repeats that round, and
    goes back then. Without the description of a classifier, they hold none.
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
    loaded = self._manager.load_latest(self._take_over)
    if loaded is None:
      self.participation = participants.Participation()
      self.digests = {}
      return None
    self._pin()
    return loaded[:2]

  def _take_over(self, round_number: int, files: Mapping[str, bytes]) -> None:
    """Takes over what a checkpoint says of the run, where that is sound."""
    try:
      said = json.loads(files[_FILE])
      table = np.array(said['participation'], np.int64).astype(np.int32)
      # NumPy cuts in silence what does not fit.
      if table.tolist() != said['participation']:
        raise ValueError('participation that no run counts')
      self.participation = participants.Participation(table)
      self.rewinds = Rewinds(
        [(first, last) for first, last in said['pauses']], said['sound_round']
      )
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
    again = dataclasses.replace(collapsed, number=number, state=state, row={})
    self.save(again, ())
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
    if self._keeps_sound:
      self.rewinds.note(finished.number, finished.row)
      self._pin()
    else:  # Nothing keeps that checkpoint.
      self.rewinds.sound_round = None
    said = {
      'participation': self.participation.table.tolist(),
      'tables': {},
      'client_states': None,
      **dataclasses.asdict(self.rewinds),
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
