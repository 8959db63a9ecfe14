"""The error of a command line that cannot be run."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tff_ssl.common import choice, user_modules
from tff_ssl.common.setting import Setting

# A setting in a text of the product.
_SETTING = re.compile(r'`([a-z_]+(=[^`]*)?)`')
# Of a sentence that quotes what a file holds, these are shown.
_CHARACTERS_SHOWN = 1_500


class UsageError(ValueError):
  """A command line that cannot be run; its text is one sentence."""

  def __init__(self, text: object):
    super().__init__(with_flags(str(text)))


def with_flags(text: str) -> str:
  """Returns a text in which flags stand for settings, which the product names.

  Args:
    text: It has settings as `name` or `name=value`.
  """
  return _SETTING.sub(r'--\1', text)


def check_name(flag: str, value: object, known: Iterable[str]) -> None:
  """Raises `UsageError` with the nearest match unless `value` is known."""
  with as_usage('--'):
    choice.check_known(flag, value, known)


def check_value(setting: Setting, value: Any) -> None:
  """Raises `UsageError` if a value is not one that its setting can have."""
  given = f'--{setting.name}={value}'
  if setting.choices:
    check_name(setting.name, value, setting.choices)
  elif not setting.allows(value):
    raise UsageError(f'{given} must be {setting.expected_for(value)}.')
  elif setting.parse is not None:
    with refusals(given, 'parse'), as_usage(f'{given}: '):
      setting.parse(value)


@contextlib.contextmanager
def as_usage(before: str = '') -> Iterator[None]:
  """Turns a `ValueError` into a `UsageError`, with a text before its own."""
  try:
    yield
  except UsageError:
    raise
  except ValueError as error:
    raise UsageError(f'{before}{error}') from error


@contextlib.contextmanager
def refusals(part: str, function: str) -> Iterator[None]:
  """Turns whatever a function of a part of a run raises into a refusal.

  The part may be a user's own, and a mistake in it is told in one sentence.

  Args:
    part: The flag that names the part, with its value.
    function: What the part calls the function.
  """
  try:
    yield
  except UsageError:
    raise
  except Exception as error:
    raise UsageError(
      f'{part}: {function} stops at {user_modules.describe(error)}: repair '
      'that.'
    ) from error


def sentence(error: Exception) -> str:
  """Returns what a command says of an error: one line that a person can read.

  Args:
    error: It may quote a file, whose lines may be long.
  """
  text = with_flags(' '.join(str(error).splitlines()))
  if len(text) <= _CHARACTERS_SHOWN:
    return text
  half = _CHARACTERS_SHOWN // 2
  return f'{text[:half]} ... {text[-half:]}'
