"""Processes that end with the one that starts them, on cores of their own.

Ray counts the cores of a machine, but does not divide them: each of its
processes would use all. Here a process takes some, which no other one that
asks here gets.
"""

import contextlib
import fcntl
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator

_LOCKS = 'tff_ssl_cores'
# Runs between fork and the command. As a program of its own it needs no Python
# between fork and exec of a process with many threads (`preexec_fn` would).
# The check of the parent closes the gap in which Python died before `prctl`.
_BIND_TO_PARENT = """
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL) != 0:  # 1: PR_SET_PDEATHSIG
  sys.exit('prctl(PR_SET_PDEATHSIG) was refused')
if os.getppid() != int(sys.argv[1]):
  sys.exit('the parent process is gone')
try:
  os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
  sys.exit(f'cannot execute {sys.argv[2]}: {error.strerror}')
"""


def bound_command(*command: str) -> list[str]:
  """Returns a command that the kernel kills with the thread that starts it."""
  python = (sys.executable, '-I', '-S', '-c', _BIND_TO_PARENT)
  return [*python, str(os.getpid()), *command]


@contextlib.contextmanager
def taken_cores(cores: int) -> Iterator[set[int]]:
  """Takes cores of this machine, until the context or the process ends.

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
