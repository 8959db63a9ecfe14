"""Goes back to before a collapse, and lets the server train alone for a while.

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

FILE = 'rewinds.json'


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
    """Returns what a checkpoint says.

    Args:
      content: Of its file, from `pack`; `None` where it has none.
    """
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
    """Returns whether clients pause in a round.

    Args:
      round_number: Of the round, 1 for the first.
    """
    return any(r < round_number <= n for r, n in self.pauses)

  def note(self, round_number: int, row: dict[str, object]) -> None:
    """Notes whether a finished round is sound.

    Args:
      round_number: Rounds done, this one included.
      row: Its metrics; `is_collapsing` is there where it was measured.
    """
    if row.get('is_collapsing') == 0:
      self.sound_round = round_number

  def go_back(self, round_number: int) -> int:
    """Notes that the run goes back.

    Args:
      round_number: The round of the collapse, n.

    Returns:
      The sound round, r.
    """
    self.pauses.append((self.sound_round, round_number))
    return self.sound_round
