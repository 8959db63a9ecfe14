"""What contexts share: processes, threads, and errors in one line.

Processes end with the one that starts them, and take cores of their own: Ray
counts the cores of a machine, but does not divide them, so that each of its
processes would use all, and its TensorFlow start as many threads. This module
works without TensorFlow.
"""

import concurrent.futures
import contextlib
import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence

_LAST_BYTES = 4000
_POLL_S = 0.1
_MAX_LINE = 500
_COUNT_OF_CAUSES = 'root error(s) found.'
# Of names of nodes and functions, which tell a user nothing.
_NAMES = re.compile(r'\{\{function_node [^}]*\}\} ?| ?\[Op:[^\]]*\]')
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

  There are fewer than asked for, and at least one, where others that also come
  through here have taken the rest.
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


def run(
  command: Sequence[str], *, cores: int, folder: str, import_from: str
) -> subprocess.CompletedProcess:
  """Runs a command on cores of this machine that no other one has taken.

  It runs in `folder`, and Python imports from `import_from`, too. Interrupted
  as by Ctrl-C, once or several times, this ends the command by one SIGTERM and
  waits for it. Call it in the main thread, in which Ray runs a task. Of what
  the command prints, the end is kept.
  """
  search = [import_from, os.environ.get('PYTHONPATH', '')]
  with (
    _interrupts(),
    taken_cores(cores) as own,
    tempfile.TemporaryFile() as output,
  ):
    process = subprocess.Popen(
      bound_command(*command),
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
    return subprocess.CompletedProcess(command, process.returncode, text)


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


def start_thread(function: Callable, *arguments) -> concurrent.futures.Future:
  """Calls a function in a thread of its own.

  A thread pool would make Python's exit wait for the round.
  """
  future = concurrent.futures.Future()

  def run():
    try:
      future.set_result(function(*arguments))
    except BaseException as error:
      future.set_exception(error)

  # A running future cannot be cancelled, and so always takes the result.
  future.set_running_or_notify_cancel()
  threading.Thread(target=run, daemon=True).start()
  return future


def first_cause(error: BaseException) -> str:
  """Returns the first cause that the text of an error names, in one line."""
  text = error.details() if hasattr(error, 'details') else str(error)
  lines = _NAMES.sub('', text or '').splitlines() or [type(error).__name__]
  line = lines[0]
  if line.endswith(_COUNT_OF_CAUSES) and len(lines) > 1:
    line = f'{line} {lines[1].strip()}'
  return line if len(line) <= _MAX_LINE else f'{line[:_MAX_LINE]} ...'
