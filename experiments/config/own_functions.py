"""Calls of the functions that a part of a run brings, such as its defaults."""

import contextlib
from collections.abc import Iterator

from experiments.config.usage import UsageError
from tff_ssl.common import user_modules


@contextlib.contextmanager
def refusals(part: str, function: str) -> Iterator[None]:
  """Turns whatever a function of a part raises into a refusal.

  The part may be a user's own, and a mistake in it is told in one sentence.

  Args:
    part: The flag that names the part, with its value.
    function: What the part calls the function.

  Yields:
    Nothing.

  Raises:
    UsageError: If the body raises anything; the sentence names the part, the
      function, and the line where it stopped.
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
