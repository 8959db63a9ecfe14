"""The error of a command line that cannot be run."""

import re
from collections.abc import Iterable

from tff_ssl.common import setting

# A setting in a text of the product.
_SETTING = re.compile(r'`([a-z_]+(=[^`]*)?)`')
# Of a sentence that quotes what a file holds, these are shown.
_CHARACTERS_SHOWN = 1_500


class UsageError(ValueError):
  """A command line that cannot be run; its text is one sentence."""

  def __init__(self, text: object):
    super().__init__(with_flags(str(text)))


def with_flags(text: str) -> str:
  """Returns a text with flags in the place of `name` and `name=value`."""
  return _SETTING.sub(r'--\1', text)


def check_name(flag: str, value: object, known: Iterable[str]) -> None:
  """Raises `UsageError` with the nearest match unless `value` is known."""
  try:
    setting.check_known(flag, value, known)
  except ValueError as error:
    raise UsageError(f'--{error}') from error


def sentence(error: Exception) -> str:
  """Returns what a command says of an error, in one line."""
  text = with_flags(' '.join(str(error).splitlines()))
  if len(text) <= _CHARACTERS_SHOWN:
    return text
  half = _CHARACTERS_SHOWN // 2
  return f'{text[:half]} ... {text[-half:]}'
