"""Commands that run on a Ray cluster, each on cores of its own.

Ray counts the cores of a machine, but does not divide them. Here a command
takes some for itself, and TensorFlow then starts as many threads.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

from tff_ssl.simulation import bound_process

_LOCKS = 'tff_ssl_cores'
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


def run(command: Sequence[str], *, cores: int, folder: str) -> Ended:
  """Runs a command on cores of this machine that no other one has taken.

  Interrupted as by Ctrl-C, it ends the command by SIGTERM and waits for it.

  Args:
    command: The path of a program, and its arguments.
    cores: How many cores.
    folder: The working folder, from which Python also imports.

  Returns:
    How it ended.
  """
  search = [folder, os.environ.get('PYTHONPATH', '')]
  with taken(cores) as own, tempfile.TemporaryFile() as output:
    process = subprocess.Popen(
      bound_process.bind(*command),
      cwd=folder,
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=subprocess.STDOUT,
      env={**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, search))},
      start_new_session=True,
    )
    os.sched_setaffinity(process.pid, own)
    try:
      # Ray's interrupt is seen between two calls of Python alone.
      while process.poll() is None:
        time.sleep(_POLL_S)
    except KeyboardInterrupt:
      process.terminate()
      process.wait()
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _LAST_BYTES))
    text = output.read().decode(errors='replace')
    return Ended(process.returncode, text)


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
