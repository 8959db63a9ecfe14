"""The error of a command line that cannot be run, and hints at near names."""

import difflib
from collections.abc import Iterable


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
