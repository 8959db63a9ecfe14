"""What a round sends to a client and gets back, read off the compiled form."""

import dataclasses
import math

import numpy as np
import tensorflow_federated as tff

from tff_ssl import compat, compiled


@dataclasses.dataclass(frozen=True)
class Communication:
  """Bytes per participating client and round, uncompressed.

  Attributes:
    down: What the server sends: weights, round, seed, hyperparameters.
    up: What the client sends: what is summed over clients, metrics included.
  """

  down: int
  up: int


def measure_communication(
  process: tff.learning.templates.LearningProcess,
  form: compiled.Form | None = None,
) -> Communication:
  """Counts the bytes of a process's compiled form (`tff_ssl.compiled`).

  In this form nothing else passes between server and clients. The client's own
  data do not count. Messages of a real system are longer by their framing, and
  shorter by its compression.

  Args:
    process: A learning process whose clients' data are its second argument.
    form: Its form, where it is at hand as that of `compose_with_reader`; making
      it takes seconds.

  Raises:
    ValueError: If a message has a part of unknown size.
  """
  down, up = compiled.messages(form or compiled.form_of(process.next))
  return Communication(down=_num_bytes(down), up=_num_bytes(up))


def _num_bytes(type_: compat.Type) -> int:
  if isinstance(type_, compat.FederatedType):
    return _num_bytes(type_.member)
  if isinstance(type_, compat.TensorType):
    if type_.shape is None or None in type_.shape:
      raise ValueError(
        f'A message holds {type_}, whose size is unknown: give it a shape.'
      )
    return math.prod(type_.shape) * np.dtype(type_.dtype).itemsize
  return sum(_num_bytes(part) for _, part in compat.iter_elements(type_))
