"""What the errors of computations say."""

import re

_MAX_LINE = 500
_COUNT_OF_CAUSES = 'root error(s) found.'
# Of names of nodes and functions, which tell a user nothing.
_NAMES = re.compile(r'\{\{function_node [^}]*\}\} ?| ?\[Op:[^\]]*\]')


def first_cause(error: BaseException) -> str:
  """Returns the first cause that the text of an error names, in one line."""
  text = error.details() if hasattr(error, 'details') else str(error)
  lines = _NAMES.sub('', text or '').splitlines() or [type(error).__name__]
  line = lines[0]
  if line.endswith(_COUNT_OF_CAUSES) and len(lines) > 1:
    line = f'{line} {lines[1].strip()}'
  return line if len(line) <= _MAX_LINE else f'{line[:_MAX_LINE]} ...'
