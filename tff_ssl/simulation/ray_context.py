"""An execution context that computes rounds on a Ray cluster.

Ray (ray.io) places processes on machines, brings values to them, and notices
when they or their machines are gone. This module gives them parts of rounds
(see `tff_ssl.simulation.divided_context`): more of them than processes, so that
a slow machine computes fewer. A part whose process is lost, or takes longer
than its deadline, is computed by another one. Its aggregate was not merged
before, so each client counts once. A cluster that does not answer any more is
an error, after which Python ends with exit code 1 (see `ray_cluster.leave`).

Ray is optional: `requirements/ray.txt` has it. Its own processes must be able
to import this library.
"""

import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import logging
import math
import os
import pickle
import threading
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_ssl import checks, compat
from tff_ssl.simulation import (
  contexts,
  processes,
  ray_cluster,
  ray_worker,
)
from tff_ssl.simulation.divided_context import (
  DividedContext,
  lies_at_clients,
)

_LOG = logging.getLogger(__name__)

# A computation that kills its process is not tried for ever.
_MAX_LOSSES = 20
_MAX_FAILED_STARTS = 5
_START_TIMEOUT_S = 600.0
# In the place of a part's index: a part of a round that was interrupted.
_OF_NO_ROUND = -1


def build_ray_context(
  address: str = 'local',
  *,
  num_parts: int = 8,
  cores_per_process: int = 1,
  max_processes: int | None = None,
  part_timeout_s: float = 600.0,
  needed_files: Sequence[str | os.PathLike[str]] = (),
  asynchronous: bool = False,
) -> compat.SyncContext | compat.AsyncContext:
  """Returns a context that computes rounds on a Ray cluster.

  Waits until a first process computes. Those for which the cluster has no room
  yet take part once it has.

  Args:
    address: As of `ray_cluster.connect`.
    num_parts: Into how many parts the clients of a round are cut. Results with
      another number may differ in their last bits.
    cores_per_process: Cores that a process of the cluster reserves. It computes
      as many clients side by side.
    max_processes: How many processes to start at most; by default, as many as
      there are parts.
    part_timeout_s: Seconds after which a part of a round is given to another
      process, and its own is ended.
    needed_files: Files that every machine must find at the same path.
    asynchronous: Whether calls return awaitables, as `tff.program` needs.

  Returns:
    The context. It simulates secure sums without cryptography: see
    `tff_ssl.compiled.simulate_secure_sums`.

  Raises:
    ValueError: If an argument is out of range.
    RuntimeError: If Ray is not installed, the cluster cannot be reached or has
      no room, or a machine does not find a file.
  """
  checks.integers_at_least(
    1, num_parts=num_parts, cores_per_process=cores_per_process
  )
  checks.integers_at_least(1, optional=True, max_processes=max_processes)
  checks.numbers_at_least(1, part_timeout_s=part_timeout_s)
  ray_cluster.connect(address)
  local = contexts.build_context()
  pool = _Pool(
    min(num_parts, max_processes or num_parts),
    part_timeout_s,
    ray_worker.Equipment(
      cores=cores_per_process,
      needed_files=tuple(os.fspath(path) for path in needed_files),
    ),
  )
  pool.wait_for_first()
  context = DividedContext(local, pool.compute, num_parts)
  return contexts.BackgroundContext(context) if asynchronous else context


def install_ray_context(
  address: str = 'local', **options: Any
) -> compat.SyncContext | compat.AsyncContext:
  """Makes a Ray cluster TFF's default execution context.

  Args:
    address: As of `ray_cluster.connect`.
    **options: Further arguments of `build_ray_context`.

  Returns:
    The installed context.

  Raises:
    ValueError: If an argument is out of range.
    RuntimeError: As of `build_ray_context`.
  """
  context = build_ray_context(address, **options)
  compat.set_default_context(context)
  return context


@dataclasses.dataclass
class _Process:
  """One process of the cluster, as this one sees it.

  Attributes:
    answer: What it will answer next; `None` if it is idle.
    part: The index of the part that it computes, or `_OF_NO_ROUND`; `None` if
      it computes none, as while it starts.
    deadline: Until when it must have answered, as of `time.monotonic`.
  """

  actor: Any
  answer: concurrent.futures.Future | None
  part: int | None = None
  deadline: float = math.inf

  def rest(self) -> None:
    """Notes that it is idle."""
    self.answer, self.part, self.deadline = None, None, math.inf


class _Round:
  """The parts of one call: which are done, and which wait."""

  def __init__(self, num_parts: int):
    self.waiting = collections.deque(range(num_parts))
    self.results = {}
    self._num_parts = num_parts
    self._losses = collections.Counter()

  def is_done(self) -> bool:
    return len(self.results) == self._num_parts

  def lose(self, part: int, why: str) -> None:
    """Lets a part be computed anew."""
    _LOG.warning('%s: another one computes its clients.', why)
    self._losses[part] += 1
    if self._losses[part] > _MAX_LOSSES:
      raise RuntimeError(
        f'Part {part} of a round was lost {self._losses[part]} times, last: '
        f'{why}. If memory ran out, cut the round into more parts; if time ran '
        'out, allow more seconds for a part.'
      )
    self.waiting.appendleft(part)


class _Pool:
  """The processes of the cluster, and what each of them computes."""

  def __init__(self, size, part_timeout_s, equipment):
    self._ray = ray_cluster.import_ray()
    self._watch = ray_cluster.Watch()
    self._part_timeout_s = part_timeout_s
    self._equipment = equipment
    self._serialized = functools.lru_cache(self._serialize)
    self._failed_starts = 0
    self._processes = [self._start() for _ in range(size)]
    # Awaited calls come from several threads (see `BackgroundContext`).
    self._lock = threading.Lock()

  def _call(self, function, *arguments):
    """Calls a function of Ray, which blocks where the cluster is silent."""
    call = processes.start_thread(function, *arguments)
    self._watch.wait([call])
    return call.result()

  def _start(self) -> _Process:
    # By these, TensorFlow computes as it does here.
    variables = {k: v for k, v in os.environ.items() if k.startswith('TF_')}
    # What is lost is computed anew here, at once and by another process.
    actor_class = self._ray.remote(
      num_cpus=self._equipment.cores,
      max_restarts=0,
      max_task_retries=0,
      runtime_env={'env_vars': variables},
    )(ray_worker.RayWorker)

    def start():
      actor = actor_class.remote(self._equipment)
      return _Process(actor, actor.check.remote().future())

    return self._call(start)

  def wait_for_first(self) -> None:
    """Waits until a process can compute."""
    nothing = _Round(0)
    while all(process.answer is not None for process in self._processes):
      for index in self._wait():
        self._receive(index, nothing)

  def compute(self, comp: compat.Computation, arguments: Sequence[Any]) -> list:
    """Computes parts, as `divided_context.ComputeParts`."""
    with self._lock:
      return self._compute(comp, arguments)

  def _compute(self, comp, arguments):
    computation = self._serialized(comp)
    shared, owns = _split(arguments, comp.type_signature.parameter)
    # So it goes to each node once, whatever the number of parts.
    shared = self._call(self._ray.put, shared)
    for process in self._processes:
      if process.part is not None:  # A round before this one was interrupted.
        process.part = _OF_NO_ROUND
    round_ = _Round(len(owns))
    while not round_.is_done():
      for process in self._processes:
        if process.answer is None and round_.waiting:
          process.part = round_.waiting.popleft()
          own = owns[process.part]
          task = self._call(
            process.actor.compute.remote, *computation, shared, own
          )
          process.answer = task.future()
          process.deadline = time.monotonic() + self._part_timeout_s
      for index in self._wait():
        self._receive(index, round_)
      for index, process in enumerate(self._processes):
        if process.deadline < time.monotonic():
          why = f'A process has computed for {self._part_timeout_s:g} s'
          self._replace(index, round_, why)
    return [round_.results[part] for part in range(len(owns))]

  def _wait(self) -> list[int]:
    """Returns which processes have answered; none if a deadline is over."""
    deadline = min(process.deadline for process in self._processes)
    only_starting = deadline == math.inf
    seconds = _START_TIMEOUT_S if only_starting else deadline - time.monotonic()
    # Not `ray.wait`: what a handler of a signal raises in it, Ray turns into a
    # `SystemError`.
    answered = self._watch.wait(
      [one.answer for one in self._processes if one.answer is not None],
      timeout=max(0.0, seconds),
    )
    if only_starting and not answered:
      raise RuntimeError(
        f'No process of {self._equipment.cores} cores has started within '
        f'{_START_TIMEOUT_S:g} s. The cluster has '
        f'{self._ray.available_resources().get("CPU", 0):g} free cores: wait '
        'for others to end, or ask for less.'
      )
    return [
      index
      for index, process in enumerate(self._processes)
      if process.answer in answered
    ]

  def _receive(self, index, round_) -> None:
    """Takes the answer of a process."""
    process = self._processes[index]
    try:
      result = process.answer.result()
    except self._ray.exceptions.RayTaskError as error:
      part = process.part
      process.rest()
      if part == _OF_NO_ROUND:
        return
      cause = processes.first_cause(error.cause)
      raise RuntimeError(f'A process of the cluster: {cause}') from error
    except self._ray.exceptions.RayError as error:
      cause = processes.first_cause(error)
      if process.part is None:
        self._count_failed_start(cause, error)
      self._replace(index, round_, f'A process is gone ({cause})')
      return
    self._failed_starts = 0
    if process.part not in (None, _OF_NO_ROUND):
      round_.results[process.part] = pickle.loads(result)
    process.rest()

  def _replace(self, index, round_, why) -> None:
    """Ends a process, and starts another one in its place."""
    process = self._processes[index]
    self._call(self._ray.kill, process.actor)
    self._processes[index] = self._start()
    if process.part not in (None, _OF_NO_ROUND):
      round_.lose(process.part, why)

  def _count_failed_start(self, cause, error) -> None:
    self._failed_starts += 1
    if self._failed_starts > _MAX_FAILED_STARTS:
      raise RuntimeError(
        f'Processes of the cluster do not start: {cause} They need the '
        'packages of this process: install the same ones on all machines.'
      ) from error

  def _serialize(self, comp):
    """Returns the name of a computation, and the reference of its text."""
    proto = compat.serialize_computation(comp)
    text = proto.SerializeToString(deterministic=True)
    # In a list, the reference stays one: a process that knows the computation
    # does not read it.
    return hashlib.sha256(text).hexdigest(), [self._call(self._ray.put, text)]


def _split(arguments, types) -> tuple[dict, list[dict]]:
  """Returns what all parts share, and what each has of its own, by index."""
  if not isinstance(types, compat.StructType):
    return {}, [{ray_worker.WHOLE: _portable(one)} for one in arguments]
  by_index = dict(enumerate(type_ for _, type_ in compat.iter_elements(types)))
  own = {i for i, type_ in by_index.items() if lies_at_clients(type_)}
  shared = {i: arguments[0][i] for i in by_index if i not in own}
  return shared, [{i: _portable(one[i]) for i in own} for one in arguments]


def _portable(value):
  """Returns a value with lists in the place of data sets, to be sent."""

  def convert(leaf):
    is_dataset = isinstance(leaf, tf.data.Dataset)
    return list(leaf.as_numpy_iterator()) if is_dataset else leaf

  return tf.nest.map_structure(convert, value)
