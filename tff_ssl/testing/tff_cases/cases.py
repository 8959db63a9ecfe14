"""What a case is, and how its outcome is found: by running it."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

from etils import epy

from tff_ssl.testing import assertions

with epy.lazy_imports():
  from tff_ssl.testing.tff_cases import builders

# How a case may end.
PASSES = 'passes'
REFUSED = 'refused'
TAKEN = 'taken'
NO_COUNTERPART = 'no counterpart'
DIFFERS = 'does not hold'


@dataclasses.dataclass(frozen=True)
class Stop:
  """The error that a case must stop with.

  Attributes:
    error: Its type.
    message: How its message starts.
  """

  error: type[Exception]
  message: str


@dataclasses.dataclass(frozen=True)
class Case:
  """One of TFF's tests, with a builder of ours in the place of TFF's.

  Attributes:
    run: Takes the builder, `builders.ours` or `builders.stock`, and raises
      `AssertionError` where what it is about does not hold. It may return a
      short remark on what it found. The first line of its docstring says what
      TFF's test is about.
    source: TFF's file and its function.
    kind: How it must end: `PASSES`; `REFUSED`, with `stop`; `TAKEN`, where TFF
      refuses what our builder takes; `NO_COUNTERPART`, where no argument of
      ours has the name, with `stop`; or `DIFFERS`, where an assertion of TFF's
      fails, with `stop`.
    stop: The error, where the kind has one.
    instead: What there is in its place, or why it is so.
  """

  run: Callable[[Callable[..., Any]], str | None]
  source: str
  kind: str = PASSES
  stop: Stop | None = None
  instead: str = ''

  @property
  def name(self) -> str:
    """The name of the case."""
    return self.run.__name__

  @property
  def about(self) -> str:
    """What TFF's test is about, in one sentence."""
    return inspect.getdoc(self.run).splitlines()[0]


def outcome(case: Case) -> str:
  """Runs a case.

  Args:
    case: The case. Where it is refused or taken, it also runs with TFF's own
      builder.

  Returns:
    How it ended, for people: one or a few sentences.

  Raises:
    AssertionError: If it does not end as it must.
  """
  if case.kind == PASSES:
    return _sentences('Passes.', case.run(builders.ours))
  if case.kind == TAKEN:
    remark = case.run(builders.ours)
    assertions.require(_stock_refuses(case), f'TFF takes {case.name}, too.')
    return _sentences('Taken; TFF refuses it.', remark, case.instead)
  error = _stop_of(case)
  said = f'"{_first_sentence(error)}"'
  if not said.endswith('."'):
    said += '.'
  if case.kind == REFUSED:
    who = 'TFF refuses it, too' if _stock_refuses(case) else 'TFF takes it'
    return _sentences(f'Refused; {who}:', said, case.instead)
  return _sentences(f'{case.kind.capitalize()}:', said, case.instead)


def _stop_of(case) -> Exception:
  """Returns the error that a case stops with, which must be `case.stop`."""
  wanted = f'{case.name} must stop with {case.stop.error.__name__}'
  try:
    case.run(builders.ours)
  except case.stop.error as error:
    assertions.require(
      str(error).startswith(case.stop.message),
      f'{wanted}: {case.stop.message!r}, but says: {error}',
    )
    return error
  raise AssertionError(f'{wanted}, but does not stop.')


def _stock_refuses(case) -> bool:
  """Whether the case stops with TFF's own builder."""
  try:
    case.run(builders.stock)
  except AssertionError:
    # It was taken, and gave something unexpected.
    raise
  except Exception:
    return True
  return False


def _first_sentence(error: Exception) -> str:
  """Returns the first sentence of a message, or its first line."""
  line = str(error).strip().splitlines()[0].rstrip(':')
  return re.split(r'(?<=[a-z)\'\]]\.) (?=[A-Z])', line, maxsplit=1)[0]


def _sentences(*parts: str | None) -> str:
  return ' '.join(part for part in parts if part)
