"""Commands that run on a Ray cluster, each on cores of its own.

TensorFlow then starts as many threads.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from tff_ssl.simulation import processes

_LAST_BYTES = 4000
_POLL_S = 0.1


@dataclasses.dataclass(frozen=True)
class Ended:
  """How a command ended.

  Attributes:
    exit_code: Its exit code, or minus the signal that ended it.
    output: The end of what it printed.
  """

  exit_code: int
  output: str


def run(
  command: Sequence[str], *, cores: int, folder: str, import_from: str
) -> Ended:
  """Runs a command on cores of this machine that no other one has taken.

  Interrupted as by Ctrl-C, once or several times, it ends the command by one
  SIGTERM and waits for it.

  Args:
    command: The path of a program, and its arguments.
    cores: How many cores.
    folder: The working folder.
    import_from: A folder from which Python imports, too.

  Raises:
    ValueError: If it is called outside the main thread, in which Ray runs a
      task.
  """
  search = [import_from, os.environ.get('PYTHONPATH', '')]
  with (
    _interrupts(),
    processes.taken_cores(cores) as own,
    tempfile.TemporaryFile() as output,
  ):
    process = subprocess.Popen(
      processes.bound_command(*command),
      cwd=folder,
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=subprocess.STDOUT,
      env={**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, search))},
      start_new_session=True,
    )
    os.sched_setaffinity(process.pid, own)
    is_told = False
    while True:
      try:
        # Ray's interrupt is seen between two calls of Python alone.
        while process.poll() is None:
          time.sleep(_POLL_S)
        break
      except KeyboardInterrupt:
        # A second signal would end a run at once.
        if not is_told:
          is_told = True
          process.terminate()
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _LAST_BYTES))
    text = output.read().decode(errors='replace')
    return Ended(process.returncode, text)


@contextlib.contextmanager
def _interrupts():
  """Lets Ray interrupt a task, which it cannot where SIGINT is ignored.

  A script's shell ignores it for all that runs in the background.
  """
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, before)
