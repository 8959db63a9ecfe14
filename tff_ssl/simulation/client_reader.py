"""Learning processes over keys of clients, and a data source of such keys.

In a simulation nothing bigger than a key should cross from Python into TFF each
round: shipping a client's images costs more than a small model's training on
them. A reader is a `tff.Computation` from a client's index to its examples; it
runs on the worker, in the same TensorFlow graph as the client's training.
"""

import collections
import dataclasses
import struct
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, compat, compiled
from tff_ssl.simulation import client_sampling

# Of the four fields of a `ClientKeyIterator`, and its round.
_FORMAT = '<5q'
_KEYS = compat.FederatedType(
  compat.TensorType(np.int32, [len(client_sampling.KEY_FIELDS)]), compat.CLIENTS
)


class ClientKeySource(compat.FederatedDataSource):
  """A data source of client keys for TFF programs (`train_model`)."""

  def __init__(
    self,
    *,
    num_clients: int,
    num_groups: int = 1,
    seed: int = 0,
    redeal: bool = False,
  ):
    """Initializes the source.

    Args:
      num_clients: K >= 1, the number of clients.
      num_groups: S >= 1, the number of groups of a round's participants.
      seed: The seed of the sampling, >= 0.
      redeal: See `sample_keys`; processes with `start_model='slot'` need it.

    Raises:
      ValueError: If an argument is out of range.
    """
    checks.integers_at_least(1, num_clients=num_clients, num_groups=num_groups)
    checks.integers_at_least(0, seed=seed)
    self._first = ClientKeyIterator(num_clients, num_groups, seed, redeal)

  @property
  def federated_type(self) -> compat.FederatedType:
    return _KEYS

  def iterator(self) -> 'ClientKeyIterator':
    return dataclasses.replace(self._first)


@dataclasses.dataclass
class ClientKeyIterator(compat.FederatedDataSourceIterator):
  """Selects the participants of one round after the other.

  Each round is drawn once, so that the round is all that changes.
  """

  num_clients: int
  num_groups: int
  seed: int
  redeal: bool
  round_num: int = 0

  @classmethod
  def from_bytes(cls, buffer: bytes) -> 'ClientKeyIterator':
    return cls(*struct.unpack(_FORMAT, buffer))

  def to_bytes(self) -> bytes:
    return struct.pack(_FORMAT, *dataclasses.astuple(self))

  @property
  def federated_type(self) -> compat.FederatedType:
    return _KEYS

  def select(self, k: int | None = None) -> list[np.ndarray]:
    """Returns the keys of the next round's `k` participants.

    Raises:
      ValueError: Unless `num_groups <= k <= num_clients`.
    """
    if k is None or not self.num_groups <= k <= self.num_clients:
      raise ValueError(
        f'The clients per round must be between num_groups={self.num_groups} '
        f'and num_clients={self.num_clients}, but are {k}.'
      )
    keys = client_sampling.sample_keys(
      **dataclasses.asdict(self), clients_per_round=k
    )
    self.round_num += 1
    return keys


class ReadingProcess(tff.learning.templates.LearningProcess):
  """A learning process over client keys.

  Attributes:
    form: The form of its rounds (`tff_ssl.compiled`), which takes seconds to
      make.
  """

  def __init__(
    self,
    process: tff.learning.templates.LearningProcess,
    next_fn: compat.Computation,
    form: compiled.Form,
  ):
    """Initializes the process: all but the round is that of `process`."""
    super().__init__(
      process.initialize,
      next_fn,
      process.get_model_weights,
      process.set_model_weights,
      get_hparams_fn=process.get_hparams,
      set_hparams_fn=process.set_hparams,
    )
    self.form = form


def compose_with_reader(
  process: tff.learning.templates.LearningProcess,
  reader: compat.Computation,
  client_ids: Sequence[str] | None = None,
) -> ReadingProcess:
  """Returns `process` with client keys in place of client data.

  Args:
    process: A learning process of this library, or any other whose client data
      are what `reader` returns.
    reader: `(int32 -> D)`, from a client's index to its examples; or, where
      the client's context has fields that no key holds, to
      `<examples=D, context=<...>>` with these. Or `(str -> D)`, from its id, as
      `dataset_computation` of a `tff.simulation.datasets.ClientData` is.
    client_ids: The ids by index, for a reader that takes ids.

  Returns:
    A `ReadingProcess`: a `tff.learning.templates.LearningProcess` whose `next`
    takes `{int32[4]}@CLIENTS`, keys of `tff_ssl.simulation.client_sampling`; or
    `{int32[6]}@CLIENTS` where the client's context has faults, keys of
    `tff_ssl.ClientFaults`.

  Raises:
    TypeError: If the reader does not return what the process takes, or takes
      ids that are not given.
  """
  reader = _by_index(reader, client_ids)
  state_type, clients_type = process.next.type_signature.parameter
  form = _form_in_one_graph(process.next, reader)
  one_graph = compiled.computation_of(form)
  with_containers = _restore_containers(state_type)

  @compat.federated_computation(state_type, _keys_type(clients_type.member))
  def next_fn(state, keys):
    state, metrics = one_graph(state, keys)
    return tff.learning.templates.LearningProcessOutput(
      compat.federated_map(with_containers, state), metrics
    )

  return ReadingProcess(process, next_fn, form)


def _by_index(
  reader: compat.Computation, client_ids: Sequence[str] | None
) -> compat.Computation:
  takes_ids = reader.type_signature.parameter.dtype == np.str_
  if takes_ids != (client_ids is not None):
    raise TypeError(
      f'The reader takes {reader.type_signature.parameter}: '
      + (
        'give client_ids, the ids in the order of the indices.'
        if takes_ids
        else 'leave out client_ids.'
      )
    )
  if client_ids is None:
    return reader
  ids = list(client_ids)
  return tff.tensorflow.computation(
    lambda index: reader(tf.constant(ids)[index]), np.int32
  )


def compose_computation_with_reader(
  computation: compat.Computation, reader: compat.Computation
) -> compat.Computation:
  """Returns `computation` with client keys in place of client data.

  Args:
    computation: `(<A@SERVER, {D}@CLIENTS> -> R@SERVER)`, a measurement such as
      `tff_ssl.build_process_diversity` builds.
    reader: `(int32 -> D)`, from a client's index to its examples.

  Returns:
    `(<A@SERVER, {int32[4]}@CLIENTS> -> R@SERVER)`; the keys are those of
    `compose_with_reader`.

  Raises:
    TypeError: If the reader does not return what the computation takes.
  """
  server_type, clients_type = computation.type_signature.parameter

  # The form that makes one graph is that of a round, with a state.
  @compat.federated_computation(server_type, clients_type)
  def as_round(server_value, data):
    return server_value, computation(server_value, data)

  one_graph = compiled.computation_of(_form_in_one_graph(as_round, reader))
  with_containers = _restore_containers(computation.type_signature.result)

  @compat.federated_computation(server_type, _keys_type(clients_type.member))
  def read_then_compute(server_value, keys):
    _, result = one_graph(server_value, keys)
    return compat.federated_map(with_containers, result)

  return read_then_compute


def _context_names(data_type: compat.Type) -> list[str]:
  """Returns the fields of the client's context; none without a context."""
  if not isinstance(data_type, compat.StructType):
    return []
  fields = compat.iter_elements(data_type['context'].element)
  return [name for name, _ in fields]


def _key_fields(data_type: compat.Type) -> tuple[str, ...]:
  """Returns the fields of the keys of clients with such data."""
  has_faults = set(client_sampling.FAULT_FIELDS) <= {*_context_names(data_type)}
  more = client_sampling.FAULT_FIELDS if has_faults else ()
  return (*client_sampling.KEY_FIELDS, *more)


def _keys_type(data_type: compat.Type) -> compat.FederatedType:
  key_type = compat.TensorType(np.int32, [len(_key_fields(data_type))])
  return compat.FederatedType(key_type, compat.CLIENTS)


def _restore_containers(type_: compat.FederatedType) -> compat.Computation:
  """Returns the identity of a type with Python containers.

  The form of `_form_in_one_graph` forgets them, such as a state's named tuple.
  """
  return tff.tensorflow.computation(lambda value: value, type_.member)


def _form_in_one_graph(
  round_computation: compat.Computation, reader: compat.Computation
) -> compiled.Form:
  """Returns the form of a round that takes keys and reads the data itself.

  In this form all that a client does is one TensorFlow graph. As two, the
  dataset would be serialized on its way from the first to the second, which
  costs milliseconds per client and memory of the worker that is never freed.
  """
  state_type, clients_type = round_computation.type_signature.parameter
  data_type = clients_type.member
  context_names = _context_names(data_type)
  keys_type = _keys_type(data_type)
  has_own_context = isinstance(reader.type_signature.result, compat.StructType)

  @tff.tensorflow.computation(keys_type.member)
  def read(key):
    data = reader(key[0])
    if not context_names:
      return data
    fields = dict(zip(_key_fields(data_type), tf.unstack(key), strict=True))
    examples = data
    if has_own_context:
      examples = data['examples']
      fields.update(data['context'])
    missing = sorted(set(context_names) - fields.keys())
    if missing:
      raise TypeError(
        f'The process takes {missing} in the context, which neither keys nor '
        'the reader give: read the client data with a reader of sets.'
      )
    context = collections.OrderedDict(
      (name, fields[name]) for name in context_names
    )
    return collections.OrderedDict(
      examples=examples, context=tf.data.Dataset.from_tensors(context)
    )

  if not data_type.is_assignable_from(read.type_signature.result):
    raise TypeError(
      f'The reader gives {read.type_signature.result}, but the process takes '
      f'{data_type}: build the process with the data_spec of the reader.'
    )

  @compat.federated_computation(state_type, keys_type)
  def read_then_next(state, keys):
    return round_computation(state, compat.federated_map(read, keys))

  return compiled.form_of(read_then_next)
