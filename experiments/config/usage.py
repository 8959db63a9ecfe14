"""The error of a command line that cannot be run, and hints at near names."""

import difflib
from collections.abc import Iterable

# Of a sentence that quotes what a file holds, these are shown.
_CHARACTERS_SHOWN = 1_500


class UsageError(ValueError):
  """A command line that cannot be run; its text is one sentence."""


def check_name(flag: str, value: object, known: Iterable[str]) -> None:
  """Raises `UsageError` with the nearest match unless `value` is known.

  Args:
    flag: Name of the flag.
    value: Its value.
    known: All possible values.
  """
  known = list(known)
  if value not in known:
    near = difflib.get_close_matches(str(value), known, n=1)
    hint = f' Did you mean {near[0]!r}?' if near else ''
    raise UsageError(
      f'--{flag}={value} is unknown; there are {", ".join(known)}.{hint}'
    )


def sentence(error: Exception) -> str:
  """Returns what a command says of an error: one line that a person can read.

  Args:
    error: It may quote a file, whose lines may be long.
  """
  text = ' '.join(str(error).splitlines())
  if len(text) <= _CHARACTERS_SHOWN:
    return text
  half = _CHARACTERS_SHOWN // 2
  return f'{text[:half]} ... {text[-half:]}'
