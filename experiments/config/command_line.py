"""How the commands end, also where nobody reads what they print."""

import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

# As a shell tells that a program was ended by a closed pipe.
UNREAD = 128 + signal.SIGPIPE


def run(main: Callable[[], int]) -> NoReturn:
  """Runs a command and ends the process with its exit code.

  Where the reader of its output has gone, as `head` does when it has enough,
  the command ends without a word, and the exit code is 141.

  Args:
    main: The command. It returns the exit code.

  Raises:
    SystemExit: Always.
  """
  try:
    try:
      exit_code = main()
    finally:
      # Now, since at the end of the process an error here could not be caught.
      if sys.stdout is not None:  # It was closed from the start.
        sys.stdout.flush()
  except BrokenPipeError:
    if not is_unread():
      raise
    # Python writes what is left in its buffers at the end of the process.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
      if _has_lost_its_reader(stream):
        os.dup2(nowhere, stream.fileno())
    exit_code = UNREAD
  sys.exit(exit_code)


def is_unread() -> bool:
  """Whether standard output or error is a pipe that nobody reads any more.

  So an error of this kind is told from one in another pipe, such as a worker's.
  """
  return any(map(_has_lost_its_reader, (sys.stdout, sys.stderr)))


def _has_lost_its_reader(stream) -> bool:
  poll = select.poll()
  try:
    poll.register(stream.fileno(), select.POLLOUT)
  except (AttributeError, OSError, ValueError):
    return False  # No file, as in a notebook, or closed.
  return any(event & select.POLLERR for _, event in poll.poll(0))
