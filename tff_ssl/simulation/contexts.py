"""What runs TFF computations: this process, or a worker of TFF beside it."""

import asyncio
import atexit
import functools
import logging
import os
from typing import Any

import tensorflow as tf

from tff_ssl import checks, compat
from tff_ssl.simulation import in_process_context, processes, worker_context

_LOG = logging.getLogger(__name__)
_THREADS = 'TF_NUM_INTRAOP_THREADS'
IN_PROCESS, WORKER = KINDS = ('in_process', 'worker')
AUTO, CPU, GPU = DEVICES = ('auto', 'cpu', 'gpu')


class BackgroundContext(compat.AsyncContext):
  """Makes a synchronous context awaitable, with a thread for each call.

  TFF's own asynchronous context blocks the caller's event loop.
  """

  def __init__(self, context: compat.SyncContext):
    self._context = context

  async def invoke(self, comp, arg):
    """Computes `comp` on `arg`, which may be awaitable itself."""
    if asyncio.iscoroutine(arg):
      arg = await arg
    return await asyncio.wrap_future(
      processes.start_thread(self._context.invoke, comp, arg)
    )


def build_context(
  kind: str = IN_PROCESS,
  *,
  default_num_clients: int = 0,
  clients_at_once: int | None = None,
  threads_per_op: int = 1,
  device: str = AUTO,
  asynchronous: bool = False,
) -> compat.SyncContext | compat.AsyncContext:
  """Returns an execution context for TFF computations.

  Both kinds compute the same, up to the last bits. They simulate secure sums
  without cryptography: see `tff_ssl.compiled.simulate_secure_sums`.

  Args:
    kind: `'in_process'` computes with the TensorFlow of this process, on a GPU
      where TensorFlow sees one. Nothing is started and nothing listens.
      `'worker'` starts TFF's own program and computes there: a computation that
      kills it leaves this process alive. It computes on CPUs alone, and listens
      on all network interfaces without a password.
    default_num_clients: Number of clients where the arguments do not tell.
    clients_at_once: How many clients are computed at a time; by default one on
      each core in this process, and all of them in a worker.
    threads_per_op: Threads of one TensorFlow op; 0 for one on each core. 1 is
      fastest where there are as many clients as cores, since clients are
      computed side by side. It holds for the whole process, if TensorFlow has
      not computed anything yet. The variable TF_NUM_INTRAOP_THREADS goes first.
    device: `'cpu'`, `'gpu'`, or `'auto'`: a GPU where there is one. With the
      kind `'in_process'` alone.
    asynchronous: Whether calls return awaitables, as `tff.program` needs.

  Returns:
    The context; `tff.framework.get_context_stack().install` enters it.

  Raises:
    ValueError: If an argument is out of range, or there is no such device.
    RuntimeError: If the worker cannot start.
  """
  checks.choice(KINDS, kind=kind)
  checks.choice(DEVICES, device=device)
  checks.integers_at_least(1, optional=True, clients_at_once=clients_at_once)
  checks.integers_at_least(
    0, default_num_clients=default_num_clients, threads_per_op=threads_per_op
  )
  end_quietly()
  if kind == WORKER:
    if device == GPU:
      raise ValueError(
        "device='gpu' does not go with kind='worker', which computes on CPUs "
        "alone: take kind='in_process'."
      )
    context = worker_context.build(
      default_num_clients, clients_at_once or -1, threads_per_op
    )
  else:
    _set_threads(threads_per_op)
    context = in_process_context.InProcessContext(
      default_num_clients, clients_at_once, _device(device)
    )
  return BackgroundContext(context) if asynchronous else context


def install_context(
  kind: str = IN_PROCESS, **options: Any
) -> compat.SyncContext | compat.AsyncContext:
  """Makes a context TFF's default, and ends the workers of earlier ones.

  TFF has one default context per thread: call this in the thread that runs the
  computations.

  Args:
    kind: As of `build_context`.
    **options: Further arguments of `build_context`.

  Returns:
    The installed context.

  Raises:
    ValueError, RuntimeError: As `build_context`.
  """
  worker_context.stop_workers()
  context = build_context(kind, **options)
  compat.set_default_context(context)
  return context


def _set_threads(threads_per_op: int) -> None:
  if _THREADS in os.environ:
    return
  try:
    tf.config.threading.set_intra_op_parallelism_threads(threads_per_op)
  except RuntimeError:
    _LOG.warning(
      'TensorFlow has computed before, and keeps its threads: '
      'threads_per_op=%d takes effect where the context is installed first.',
      threads_per_op,
    )


def _device(device: str) -> str | None:
  """Returns TensorFlow's name of a device; `None` where it may decide."""
  if device == GPU and not tf.config.get_visible_devices('GPU'):
    raise ValueError(
      "device='gpu': TensorFlow sees no GPU; python -m tff_ssl.doctor says "
      "more. Take 'auto' or 'cpu'."
    )
  return {AUTO: None, CPU: '/CPU:0', GPU: '/GPU:0'}[device]


class _EndedContext(compat.SyncContext):
  """What is TFF's default context while Python ends."""

  def invoke(self, comp, arg):
    raise RuntimeError('Python is ending: no computation can run any more.')


@functools.cache
def end_quietly() -> None:
  """Lets Python's end free the default context while modules are still there.

  TFF's own, where nobody has replaced it, otherwise prints a traceback.
  """
  atexit.register(compat.set_default_context, _EndedContext())
