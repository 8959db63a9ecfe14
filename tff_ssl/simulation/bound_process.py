"""Commands that end with the process that started them, however it ends."""

import os
import sys

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


def bind(*command: str) -> list[str]:
  """Returns a command that the kernel kills with the thread that starts it.

  Args:
    *command: The path of a program, and its arguments.
  """
  python = (sys.executable, '-I', '-S', '-c', _BIND_TO_PARENT)
  return [*python, str(os.getpid()), *command]
