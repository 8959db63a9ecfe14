"""How many rounds a run has released, repeated ones counted each time.

A run that is killed goes on from its last checkpoint and repeats the rounds
after it. Their models may have been seen, and the noise of the repeated rounds
is drawn anew, so each of them costs privacy twice. The same holds for a run
that goes back after a collapse.

A count that is written with a checkpoint does not know of rounds after it. So
write this one to a file of its own before each round begins, and read it when
the run goes on. Then a round that is killed before its release counts, too;
epsilon is too large by that round, never too small. A round of Poisson sampling
that happens to draw nobody counts, too: that chance is part of the account.
"""

import dataclasses
import json

from tff_ssl import checks

# The name of the file, where a program has no other.
FILE = 'released_rounds.json'


@dataclasses.dataclass
class ReleaseLedger:
  """Counts rounds, for `PrivacyAccount.epsilon`.

  Attributes:
    rounds: Rounds that have begun since the run first started, those that were
      repeated once for each time.
  """

  rounds: int = 0

  def begin_round(self) -> None:
    """Counts a round. Write `pack()` to the disk before it trains."""
    self.rounds += 1

  def pack(self) -> bytes:
    """Returns the content of the ledger's file."""
    return json.dumps(dataclasses.asdict(self)).encode()

  @classmethod
  def unpack(
    cls, content: bytes | None, rounds_done: int = 0
  ) -> 'ReleaseLedger':
    """Returns what the ledger's file says.

    Args:
      content: From `pack`; `None` where there is no file yet.
      rounds_done: Rounds of the run so far, as its checkpoint says.

    Raises:
      ValueError: If the content is no ledger, or counts fewer rounds than were
        done.
    """
    try:
      rounds = 0 if content is None else json.loads(content)['rounds']
      checks.integers_at_least(0, rounds=rounds)
    except (ValueError, TypeError, LookupError) as error:
      raise ValueError(
        f'The ledger of released rounds is damaged ({error}): restore its '
        'newest copy, or start the run anew in another folder.'
      ) from error
    if rounds < rounds_done:
      raise ValueError(
        f'The ledger counts {rounds} released rounds, but rounds_done='
        f'{rounds_done}: restore its newest copy, or start the run anew in '
        'another folder.'
      )
    return cls(rounds)
