"""Computes TFF computations in this process, with its own TensorFlow.

Nothing is started and nothing listens. Where TensorFlow sees a GPU, so does
TFF. `tff_ssl.simulation.interpreter` says what happens.
"""

import atexit
import concurrent.futures
import contextlib
import ctypes
import itertools
import logging
import os
import threading
import weakref

from tff_ssl import compat, compiled
from tff_ssl.simulation import interpreter, processes, tensorflow_blocks

_LOG = logging.getLogger(__name__)
_ARENA_MAX = -8  # `M_ARENA_MAX` of malloc.h.
# Seconds to wait for what was given up; and at the end of Python, which crashes
# where it is amid an operation of TensorFlow.
_END_S, _EXIT_S = 0.8, 10.0
# What was given up and had not ended in time.
_unfinished: set[concurrent.futures.Future] = set()


@atexit.register
def _end() -> None:
  concurrent.futures.wait(_unfinished, _EXIT_S)


class InProcessContext(compat.SyncContext):
  """Computes in this process; see the module."""

  def __init__(
    self,
    default_num_clients: int = 0,
    clients_at_once: int | None = None,
    device: str | None = None,
    warn_after_s: float = 600.0,
  ):
    """Initializes the context; see `contexts.build_context`.

    By default TensorFlow decides on the device, such as `'/CPU:0'`. After
    `warn_after_s` seconds, and again after as many, a computation that has not
    ended is logged, with the clients that it waits for.
    """
    # By default glibc gives each of many threads an arena of its own, over all
    # of which buffers of the size of a model scatter.
    with contextlib.suppress(AttributeError):
      ctypes.CDLL(None).mallopt(_ARENA_MAX, max(2, os.cpu_count() or 1))
    self._default_num_clients = default_num_clients
    self._at_once = clients_at_once or len(os.sched_getaffinity(0))
    self._warn_after_s = warn_after_s
    self._blocks = tensorflow_blocks.TensorFlowBlocks(self._at_once, device)
    self._programs: dict[int, interpreter.Program] = {}
    self._compiling = threading.Lock()

  def invoke(self, comp: compat.Computation, arg=None):
    """Computes `comp` on `arg`.

    An error of TensorFlow says at which client it happened. What this context
    does not run, such as a part in JAX, is a `NotImplementedError`.
    """
    types = comp.type_signature
    num_clients = self._default_num_clients
    if arg is not None:
      cardinalities = compat.infer_cardinalities(arg, types.parameter)
      num_clients = cardinalities.get(compat.CLIENTS, num_clients)
    call = interpreter.Call(num_clients, self._at_once)
    # In a thread of its own: the main one hears of Ctrl-C only between calls of
    # TensorFlow, and one of these may be a whole client. And the caller's may
    # be building a graph.
    future = processes.start_thread(self._compute, comp, arg, call)
    try:
      result = self._wait(future, call)
    except BaseException:
      call.cancel()
      begun = [future, *call.begun]
      _unfinished.update(concurrent.futures.wait(begun, _END_S).not_done)
      raise
    return compat.type_to_py_container(result, types.result)

  def _compute(self, comp, arg, call):
    types, argument = comp.type_signature, None
    program = self._program(comp)
    if arg is not None:
      argument = interpreter.ingest(arg, types.parameter)
    return interpreter.egest(program.run(argument, call), types.result)

  def _wait(self, future, call):
    """Returns the result of a computation; logs if it takes long."""
    for times in itertools.count(1):
      done, _ = concurrent.futures.wait([future], self._warn_after_s)
      if done:
        break
      _LOG.warning(
        'A computation has taken %g s; it is at %s. A client that computes for '
        'long and one that hangs look alike from here. Nothing ends an '
        'operation of TensorFlow that hangs: if so, kill this process and '
        'start again.',
        times * self._warn_after_s,
        call.where(),
      )
    return future.result()

  def _program(self, comp) -> interpreter.Program:
    with self._compiling:
      key = id(comp)
      if key not in self._programs:
        self._programs[key] = interpreter.Program(
          compiled.simulate_secure_sums(comp), self._blocks
        )
        # As long as the computation lives, its id is taken.
        weakref.finalize(comp, self._programs.pop, key, None).atexit = False
      return self._programs[key]
