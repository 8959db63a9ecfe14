"""What a case is, and how its outcome is found: by running it."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from tests.tff_parity import builders


@dataclasses.dataclass(frozen=True)
class End:
  """How a case must end.

  Attributes:
    kind: 'passes'; 'refused', with an error; 'taken', where TFF refuses what
      our builder takes; 'no counterpart', with the error, where no argument of
      ours has the name; or 'does not hold', where an assertion of TFF's fails.
    error: Type of the error.
    message: How its message starts.
    instead: What there is in its place, or why it is so.
  """

  kind: str
  error: type[Exception] | None = None
  message: str = ''
  instead: str = ''


PASSES, TAKEN = End('passes'), End('taken')
refused = functools.partial(End, 'refused')
no_counterpart = functools.partial(End, 'no counterpart')
differs = functools.partial(End, 'does not hold')


@dataclasses.dataclass(frozen=True)
class Case:
  """One of TFF's tests, with a builder of ours in the place of TFF's.

  Attributes:
    name: Its name in its group.
    about: What TFF's test is about, in one sentence.
    source: TFF's file and its function.
    run: Takes the builder, `builders.ours` or `builders.stock`, and fails an
      assertion where what it is about does not hold. It may return a short
      remark on what it found.
    end: How it must end.
  """

  name: str
  about: str
  source: str
  run: Callable[[Callable[..., Any]], str | None]
  end: End = PASSES


class Group(list):
  """Cases in the order of the page: rows, and functions where one is needed."""

  def __init__(self, title: str):
    super().__init__()
    self.title = title

  def row(self, *fields) -> None:
    """Adds a case by its fields."""
    self.append(Case(*fields))

  def case(self, source: str, end: End = PASSES):
    """Adds a function, whose docstring says what the test is about."""

    def add(run):
      self.append(Case(run.__name__, inspect.getdoc(run), source, run, end))
      return run

    return add


def outcome(case: Case) -> str:
  """Runs a case; returns how it ended, in one or a few sentences.

  What is refused or taken also runs with TFF's own builder.

  Raises:
    AssertionError: If it does not end as it must.
  """
  kind, instead = case.end.kind, case.end.instead
  if case.end.error is None:
    remark = case.run(builders.ours)
    if kind == 'passes':
      return _sentences('Passes.', remark)
    assert _stock_refuses(case), f'TFF takes {case.name}, too.'
    return _sentences('Taken; TFF refuses it.', remark, instead)
  said = f'"{_first_sentence(_stop_of(case))}"'
  if not said.endswith('."'):
    said += '.'
  how = kind.capitalize()
  if kind == 'refused':
    too = 'TFF refuses it, too' if _stock_refuses(case) else 'TFF takes it'
    how = f'Refused; {too}'
  return _sentences(f'{how}:', said, instead)


def _stop_of(case) -> Exception:
  """Returns the error that a case stops with, which must be the one named."""
  wanted = f'{case.name} must stop with {case.end.error.__name__}'
  try:
    case.run(builders.ours)
  except case.end.error as error:
    if not str(error).startswith(case.end.message):
      raise AssertionError(
        f'{wanted}: {case.end.message!r}, but says: {error}'
      ) from error
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
