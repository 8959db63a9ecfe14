"""What the processor of this machine is and can do, as Linux tells it.

It needs the standard library alone, of any Python that `tff_ssl.doctor` may be
started with.
"""

from __future__ import annotations

import pathlib

_CPU_INFO = pathlib.Path('/proc/cpuinfo')


def fields() -> dict[str, str]:
  """Returns the fields of the first processor; none where Linux does not tell.

  Returns:
    Texts by name, such as those of 'model name' and 'flags'.
  """
  if not _CPU_INFO.exists():
    return {}
  first = _CPU_INFO.read_text().partition('\n\n')[0]
  pairs = (line.partition(':') for line in first.splitlines())
  return {name.strip(): value.strip() for name, _, value in pairs}


def flags() -> frozenset[str]:
  """Returns the feature flags; empty where Linux does not tell."""
  return frozenset(fields().get('flags', '').split())
