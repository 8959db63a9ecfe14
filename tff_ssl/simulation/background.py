"""Calls that run beside the caller."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable

from tff_ssl import compat


def start(function: Callable, *arguments) -> concurrent.futures.Future:
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


class BackgroundContext(compat.AsyncContext):
  """Makes a synchronous context awaitable, with a thread for each call.

  TFF's own asynchronous context blocks the caller's event loop.
  """

  def __init__(self, context: compat.SyncContext):
    """Initializes the context."""
    self._context = context

  async def invoke(self, comp, arg):
    """Computes `comp` on `arg`, which may be awaitable itself."""
    if asyncio.iscoroutine(arg):
      arg = await arg
    return await asyncio.wrap_future(start(self._context.invoke, comp, arg))
