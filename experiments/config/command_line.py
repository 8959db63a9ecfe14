"""How each command begins and ends, whatever it does."""

import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

# The exit code of a command that cannot be run as asked.
REFUSED = 2
# The exit code by which a shell reports that a closed pipe ended a program.
UNREAD = 128 + signal.SIGPIPE


def run(main: Callable[[], int]) -> NoReturn:
  """Runs a command and ends the process with its exit code.

  A reader of the output may go before its end, as `head` does. Then the command
  ends without an error message, and the exit code is 141.
  """
  try:
    try:
      exit_code = main()
    finally:
      # Flushed now: an error at the end of the process could not be caught.
      if sys.stdout is not None:  # It is None where it was closed beforehand.
        sys.stdout.flush()
  except BrokenPipeError:
    if not is_unread():
      raise
    # At its end, Python writes what is left in its buffers; that goes nowhere.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
      if _has_lost_its_reader(stream):
        os.dup2(nowhere, stream.fileno())
    exit_code = UNREAD
  # At Python's exit, the code is not known any more.
  if ray_cluster := sys.modules.get('tff_ssl.simulation.ray_cluster'):
    ray_cluster.leave(exit_code)
  sys.exit(exit_code)


def is_unread() -> bool:
  """Returns whether standard output or error is a pipe without a reader.

  A caller that catches a broken pipe asks this, since the pipe may also be
  another one, such as a worker's.
  """
  return any(map(_has_lost_its_reader, (sys.stdout, sys.stderr)))


def _has_lost_its_reader(stream) -> bool:
  poll = select.poll()
  try:
    poll.register(stream.fileno(), select.POLLOUT)
  except (AttributeError, OSError, ValueError):
    return False  # No file, as in a notebook, or closed.
  return any(event & select.POLLERR for _, event in poll.poll(0))
