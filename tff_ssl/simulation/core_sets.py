"""Cores of a machine that a process takes for itself.

Ray counts the cores of a machine, but does not divide them: each of its
processes would use all. Here a process takes some, which no other one that
asks here gets.
"""

import contextlib
import fcntl
import os
import pathlib
import tempfile
from collections.abc import Iterator

_LOCKS = 'tff_ssl_cores'


@contextlib.contextmanager
def taken(cores: int) -> Iterator[set[int]]:
  """Takes cores of this machine, until the context or the process ends.

  Args:
    cores: How many cores.

  Yields:
    Their numbers; fewer than asked for, and at least one, where others that
    also come through here have taken the rest.
  """
  folder = pathlib.Path(tempfile.gettempdir(), f'{_LOCKS}_{os.getuid()}')
  folder.mkdir(exist_ok=True)
  allowed = sorted(os.sched_getaffinity(0))
  with contextlib.ExitStack() as locks:
    own = set()
    for core in allowed:
      if len(own) == cores:
        break
      file = locks.enter_context((folder / str(core)).open('wb'))
      with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        own.add(core)
    yield own or set(allowed)
