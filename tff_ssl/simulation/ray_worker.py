"""What runs in a process that Ray starts: a part of a round."""

import collections
import contextlib
import dataclasses
import os
import pickle
import socket

import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2

from tff_ssl import compat
from tff_ssl.simulation import contexts, processes

# The index of an argument that has no elements.
WHOLE = -1
# Computations that a process keeps: a run has a handful.
_KEPT = 32


@dataclasses.dataclass(frozen=True)
class Equipment:
  """What a process has, and needs.

  Attributes:
    cores: How many clients it computes side by side, each on one core.
    needed_files: Files that it must be able to read.
  """

  cores: int = 1
  needed_files: tuple[str, ...] = ()


class RayWorker:
  """Computes parts of rounds; an actor class for `ray.remote`."""

  def __init__(self, equipment: Equipment):
    """Sets up TensorFlow."""
    self._equipment = equipment
    # Before TensorFlow counts them.
    self._cores = contextlib.ExitStack()
    own = self._cores.enter_context(processes.taken_cores(equipment.cores))
    os.sched_setaffinity(0, own)
    self._context = contexts.build_context(clients_at_once=equipment.cores)
    self._computations = collections.OrderedDict()

  def check(self) -> int:
    """Returns the process id, once it has all files and can compute."""
    for path in self._equipment.needed_files:
      try:
        with open(path, 'rb') as file:
          file.read(1)
      except OSError as error:
        raise RuntimeError(
          f'{socket.gethostname()} cannot read {path} ({error.strerror}): the '
          'file must lie at the same path on all machines, as on a shared disk.'
        ) from error
    return os.getpid()

  def compute(self, key: str, serialized, shared, own) -> bytes:
    """Computes what a part of the clients contributes to a round.

    Args:
      key: The computation's name.
      serialized: A list with the reference of its serialized form, which is
        read only where the computation is not known yet.
      shared: The elements of the argument that all parts share, by index.
      own: The other elements, by index.

    Returns:
      The pickled result. Ray would give arrays as views of its store. Whoever
      freed one while the store's node hangs would hang with it, and all of
      Python.
    """
    elements = {**shared, **own}
    if WHOLE in elements:
      argument = elements[WHOLE]
    else:
      argument = tff.structure.Struct.unnamed(
        *(elements[index] for index in range(len(elements)))
      )
    try:
      result = self._context.invoke(
        self._computation(key, serialized), argument
      )
      return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
      # Errors of gRPC cannot be sent.
      raise RuntimeError(processes.first_cause(error)) from None

  def _computation(self, key, serialized):
    if key not in self._computations:
      import ray  # Is there, in a process that it has started.

      proto = computation_pb2.Computation.FromString(ray.get(serialized[0]))
      self._computations[key] = compat.deserialize_computation(proto)
    self._computations.move_to_end(key)
    while len(self._computations) > _KEPT:
      self._computations.popitem(last=False)
    return self._computations[key]
