"""How each command begins, prints, refuses, is stopped and ends."""

import contextlib
import json
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from tff_ssl.common import setting

# The exit code of a command that cannot be run as asked.
REFUSED = 2
# The exit code by which a shell reports that a closed pipe ended a program.
UNREAD = 128 + signal.SIGPIPE
# They stop a command; nothing that was saved is lost.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A setting in a text of the product.
_SETTING = re.compile(r'`([a-z_]+(=[^`]*)?)`')
# Of a sentence that quotes what a file holds, these are shown.
_CHARACTERS_SHOWN = 1_500


class UsageError(ValueError):
  """A command line that cannot be run; its text is one sentence."""

  def __init__(self, text: object):
    super().__init__(with_flags(str(text)))


def with_flags(text: str) -> str:
  """Returns a text with flags in the place of `name` and `name=value`."""
  return _SETTING.sub(r'--\1', text)


def check_name(flag: str, value: object, known: Iterable[str]) -> None:
  """Raises `UsageError` with the nearest match unless `value` is known."""
  try:
    setting.check_known(flag, value, known)
  except ValueError as error:
    raise UsageError(f'--{error}') from error


def sentence(error: Exception) -> str:
  """Returns what a command says of an error, in one line."""
  text = with_flags(' '.join(str(error).splitlines()))
  if len(text) <= _CHARACTERS_SHOWN:
    return text
  half = _CHARACTERS_SHOWN // 2
  return f'{text[:half]} ... {text[-half:]}'


def run(main: Callable[[], int]) -> NoReturn:
  """Runs a command and ends the process with its exit code.

  Of what TensorFlow says, only errors are printed, unless the user has chosen.

  A reader of the output may go before its end, as `head` does. Then the command
  ends without an error message, and the exit code is 141.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
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


@contextlib.contextmanager
def json_output() -> Iterator[dict[str, Any]]:
  """Prints one JSON document in the place of lines for people.

  Yields a dictionary to put it in. All that is printed inside goes to standard
  error. A document that is empty at the end is not printed.
  """
  document = {}
  with contextlib.redirect_stdout(sys.stderr):
    yield document
  if document:
    print(json.dumps(strict_json(document), indent=2, allow_nan=False))


def strict_json(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns values as JSON has them: numbers that are not finite are null."""
  text = json.dumps(values, default=_plain)
  return json.loads(text, parse_constant=lambda not_finite: None)


def _plain(value: Any) -> Any:
  """Returns a value of numpy's as numbers of Python's."""
  array = np.asarray(value)
  # bfloat16 is not a type of numpy itself: `tolist` would not give floats.
  return (
    array.astype(np.float32) if array.dtype.kind == 'V' else array
  ).tolist()


def in_words(seconds: float) -> str:
  """Returns a duration for people, such as '12 min'."""
  for unit, length in (('days', 86_400), ('h', 3_600), ('min', 60)):
    number = seconds / length
    if number >= 10:
      return f'{number:,.0f} {unit}'
    if number >= 2:
      return f'{number:.1f} {unit}'
  return f'{max(1, round(seconds))} s'


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


class RoundDropped(BaseException):
  """Raised by the first signal inside `GracefulStop.droppable`.

  It is not an `Exception`, so that no handler takes it for a failed round.
  """


class SignalHandler:
  """While it is entered, a subclass handles SIGTERM and SIGINT.

  Only the main thread can use it. The earlier handlers are restored at the end.
  """

  def _handle(self, signal_number: int, frame) -> None:
    raise NotImplementedError

  def __enter__(self):
    self._earlier = {
      number: signal.signal(number, self._handle) for number in _SIGNALS
    }
    return self

  def __exit__(self, *unused) -> None:
    for number, handler in self._earlier.items():
      signal.signal(number, handler)


class GracefulStop(SignalHandler):
  """Turns the first SIGTERM or SIGINT into a request to stop.

  The second one ends the process at once with exit code 128 + its number.
  """

  def __init__(self):
    # The first signal, if any.
    self.signal_number: int | None = None
    self._is_droppable = False

  @property
  def requested(self) -> bool:
    """Whether a signal has come."""
    return self.signal_number is not None

  @property
  def exit_code(self) -> int:
    """143 after SIGTERM, 130 after SIGINT, 0 without either."""
    return 128 + self.signal_number if self.requested else 0

  @contextlib.contextmanager
  def droppable(self):
    """Marks work that a stopped run may drop, since a resumed run repeats it.

    The first signal inside raises `RoundDropped`.
    """
    self._is_droppable = True
    try:
      yield
    finally:
      self._is_droppable = False

  def _handle(self, signal_number: int, frame) -> None:
    del frame  # Python's handlers take it.
    if self.requested:
      # Without a clean-up that could block: all that is saved is on the disk.
      os._exit(128 + signal_number)
    self.signal_number = signal_number
    # Not `print`: the signal may come in the middle of another print.
    name = signal.Signals(signal_number).name
    os.write(2, f'{name}: stopping; send it again to end at once.\n'.encode())
    if self._is_droppable:
      raise RoundDropped
