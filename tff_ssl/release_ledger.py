"""How often each round of a run was released, repeated ones counted each time.

A run that is killed goes on from its last checkpoint and repeats the rounds
after it. Their models may have been seen. The noise of a repeated round is
drawn anew, but its clients are the same, by the seed. So the two releases are
no two independent rounds: who took part once took part twice, and averaging
them halves the variance of the noise (`PrivacyAccount.epsilon`).

A count that is written with a checkpoint does not know of rounds after it. So
write this one to a file of its own before each round begins, and read it when
the run goes on. Then a round that is killed before its release counts, too;
epsilon is too large by that round, never too small. A round of Poisson sampling
that happens to draw nobody counts, too: that chance is part of the account.
"""

import collections
import dataclasses
import json
from collections.abc import Mapping

from tff_ssl import checks

# The name of the file, where a program has no other.
FILE = 'released_rounds.json'


@dataclasses.dataclass
class ReleaseLedger:
  """Counts releases, for `PrivacyAccount.epsilon`.

  Attributes:
    begun: Number of the rounds that have begun: those below it, each once.
    repeated: Of the rounds among them that have begun more than once, or for
      which clients were drawn more than once: how often each of their draws
      has begun.
  """

  begun: int = 0
  repeated: dict[int, list[int]] = dataclasses.field(default_factory=dict)

  @property
  def rounds(self) -> int:
    """All releases, those of a repeated round once for each time."""
    return sum(times * draws for times, draws in self.releases().items())

  def releases(self) -> Mapping[int, int]:
    """Returns how many draws of clients were released so many times."""
    counts = collections.Counter(
      times for draws in self.repeated.values() for times in draws if times
    )
    counts[1] += self.begun - len(self.repeated)
    return +counts

  def begin_round(self, round_num: int, attempt: int = 0) -> None:
    """Counts a round. Write `pack()` to the disk before it trains.

    Args:
      round_num: Rounds before it in which clients send something.
      attempt: How often clients were drawn for this round before, where others
        are drawn each time.

    Raises:
      ValueError: If a number is no integer >= 0.
    """
    checks.integers_at_least(0, round_num=round_num, attempt=attempt)
    is_new = round_num >= self.begun
    draws = [] if is_new else self.repeated.pop(round_num, [1])
    draws += [0] * (attempt + 1 - len(draws))
    draws[attempt] += 1
    if draws != [1]:
      self.repeated[round_num] = draws
    self.begun = max(self.begun, round_num + 1)

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
      values = {'rounds': 0} if content is None else json.loads(content)
      ledger = cls(**_read(values, rounds_done))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
      raise ValueError(
        f'The ledger of released rounds is damaged ({error}): restore its '
        'newest copy, or start the run anew in another folder.'
      ) from error
    if ledger.begun < rounds_done:
      raise ValueError(
        f'The ledger counts {ledger.begun} released rounds, but rounds_done='
        f'{rounds_done}: restore its newest copy, or start the run anew in '
        'another folder.'
      )
    return ledger


def _read(values, rounds_done):
  """Returns the fields of a ledger, checked."""
  if 'rounds' in values:
    return _read_older(values['rounds'], rounds_done)
  begun, repeated = values['begun'], values['repeated']
  checks.integers_at_least(0, begun=begun)
  fields = {'begun': begun, 'repeated': {}}
  for text, draws in repeated.items():
    round_num = int(text)
    if not 0 <= round_num < begun or not draws:
      raise ValueError(f'it repeats round {text} of {begun}')
    for times in draws:
      checks.integers_at_least(0, times=times)
    fields['repeated'][round_num] = list(draws)
  return fields


def _read_older(rounds, rounds_done):
  """Returns the fields for a file that says no more than how many rounds began.

  As if one of them was repeated as often as there are rounds too many, which
  costs at least as much as whatever happened.
  """
  checks.integers_at_least(0, rounds=rounds)
  begun = min(rounds, max(rounds_done, 1))
  repeated = {0: [rounds - begun + 1]} if rounds > begun else {}
  return {'begun': begun, 'repeated': repeated}
