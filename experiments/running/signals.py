"""Stops a run at a signal; nothing that was saved is lost."""

import contextlib
import os
import signal

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
