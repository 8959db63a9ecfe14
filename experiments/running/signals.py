"""Ends a run at a signal without losing the work that is saved."""

import contextlib
import os
import signal

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class RoundDropped(BaseException):
  """Raised by the first signal inside `GracefulStop.droppable`.

  Not an `Exception`, so that nobody between takes it for a failed round.
  """


class SignalHandler:
  """Handles SIGTERM and SIGINT in the way of a subclass while it is entered.

  Only the main thread can use this; the earlier handlers come back at the end.
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

  The second one ends the process at once with exit code 128 + its number:

    with GracefulStop() as stop:
      for round_number in rounds:
        if stop.requested:
          break
        with stop.droppable():
          state = run_round(state)
        save(state)
    sys.exit(stop.exit_code)
  """

  def __init__(self):
    self._signal_number = None
    self._is_droppable = False

  @property
  def requested(self) -> bool:
    """Whether a signal has come."""
    return self._signal_number is not None

  @property
  def exit_code(self) -> int:
    """143 after SIGTERM, 130 after SIGINT, 0 without either."""
    return 128 + self._signal_number if self.requested else 0

  @contextlib.contextmanager
  def droppable(self):
    """Marks work that a resumed run repeats, so that stopping may drop it.

    Yields:
      Nothing.

    Raises:
      RoundDropped: When the first signal comes inside.
    """
    self._is_droppable = True
    try:
      yield
    finally:
      self._is_droppable = False

  def _handle(self, signal_number: int, frame) -> None:
    del frame  # Python's handlers take it.
    if self.requested:
      # No clean-up that could block: what is saved is durable already.
      os._exit(128 + signal_number)
    self._signal_number = signal_number
    # Not `print`: the signal may come in the middle of another print.
    name = signal.Signals(signal_number).name
    os.write(2, f'{name}: stopping; send it again to end at once.\n'.encode())
    if self._is_droppable:
      raise RoundDropped
