"""What outlives a round, beside the weights of the model.

```
SlotMemory      a state of each position among the participants, at the server
ClientMemory    a state of each client, on the client's own disk
MeanState       the mean of the states that the clients of a round leave
SharedMean      one state at the server that all clients read, and to which the
                mean of what they contribute is added
```

FedMatch's table of helper clients is a `Memory`, too (`helper_clients`).
"""

import abc
import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tff_ssl import protocols, shared_settings, stacks
from tff_ssl.templates import (
  client_data,
  client_state,
  client_task,
  faults,
)


class Memory(abc.ABC):
  """Something that outlives a round.

  Attributes:
    field: Its name in the state of the client work, which lies at the server;
      `None` for a memory of which the server has nothing.
    in_the_clear: What of the clients the server sums in the clear, in a few
      words, with the remedy where there is one; '' for nothing.
  """

  field: str | None = None
  in_the_clear = ''

  def initial(self) -> Any:
    """Returns what the server has before the first round."""
    return None

  def send(self, state: Any) -> Any:
    """Returns what clients are sent of the server's state."""
    return state

  @abc.abstractmethod
  def read(
    self, task: client_task.ClientTask, sent: Any
  ) -> tuple[client_task.ClientTask, tf.Tensor]:
    """Puts into a client's task what the memory holds for the client.

    The scalar says whether it has no place for this client, which is left out
    of the round then.
    """

  @abc.abstractmethod
  def leave(
    self,
    task: client_task.ClientTask,
    update: client_task.LocalUpdate,
    counts: tf.Tensor,
  ) -> tuple[Any, Sequence[tf.Operation]]:
    """Returns what a client leaves at the end of its round.

    That is numbers that are summed over clients for `merge`, zero unless the
    client `counts`; and operations that the client's result has to wait for.
    """

  def merge(self, state: Any, sums: Any) -> Any:
    """Returns the server's state after a round, from the clients' sums."""
    return state


@dataclasses.dataclass(frozen=True)
class ClientMemory(Memory):
  """The clients' own states in a folder, of which the server sees nothing."""

  folder: str
  initial_state: Callable[[client_task.ClientTask], protocols.Structure]

  def __post_init__(self):
    client_state.check_folder(self.folder)

  def read(self, task, sent):
    own, _ = client_state.read(
      self.folder, task, lambda: self.initial_state(task)
    )
    return task._replace(client_state=own), tf.constant(False)

  def leave(self, task, update, counts):
    return None, [
      client_state.write(self.folder, task, update.result.client_state, counts)
    ]


@dataclasses.dataclass(frozen=True)
class SlotMemory(Memory):
  """The optimizer states of the C slots of a round.

  A slot is a position among the participants of a round. The client that fills
  it reads the slot's row of a stack `[C, ...]` and leaves a new one. In the
  code of the grouping paper's authors a slot's momentum survives the round,
  while the client in the slot changes. The server sends the whole stack to
  every client and gets as much back from each, so this is for small models, and
  for comparison with that code.

  A client whose slot does not exist is invalid. A slot that several clients
  claim keeps its old state.
  """

  num_slots: int
  initial_state: Callable[[], protocols.Structure]

  field = 'slots'
  in_the_clear = "the clients' momenta (client_momentum='reset' has none)"

  def initial(self):
    return stacks.tile(self.initial_state(), self.num_slots)

  def read(self, task, sent):
    missing = stacks.is_missing(task.slot, self.num_slots)
    own = stacks.row(sent, task.slot)
    return task._replace(optimizer_state=own), missing

  def leave(self, task, update, counts):
    rows = stacks.scatter(
      update.result.optimizer_state, task.slot, self.num_slots, counts
    )
    return rows, []

  def merge(self, state, sums):
    return stacks.merge(state, *sums)


@dataclasses.dataclass(frozen=True)
class _Mean(Memory):
  """The mean of something that clients leave, by the weights of their deltas.

  Attributes:
    initial_state: Returns the first state, a structure of floats.
  """

  initial_state: Callable[[], protocols.Structure]

  def initial(self):
    return tf.nest.map_structure(tf.convert_to_tensor, self.initial_state())

  def _leave(self, value, weight, counts, **more):
    """Returns what a client that leaves a value adds to the sums."""
    sums = collections.OrderedDict(
      total=tf.nest.map_structure(
        lambda leaf: tf.cast(weight, leaf.dtype) * leaf, value
      ),
      weight=weight,
      **more,
    )
    return faults.zero_unless(counts, sums), []

  def _mean(self, sums):
    """Returns the mean of the values; 0 where nobody has a weight."""
    return tf.nest.map_structure(
      lambda leaf: tf.math.divide_no_nan(
        leaf, tf.cast(sums['weight'], leaf.dtype)
      ),
      sums['total'],
    )


class MeanState(_Mean):
  """The mean of the optimizer states that the clients of a round leave.

  All clients of the next round begin with it. Without clients that count, or
  where the mean is not finite, the state stays as it was.
  """

  field = 'momentum'
  in_the_clear = SlotMemory.in_the_clear

  def read(self, task, sent):
    return task._replace(optimizer_state=sent), tf.constant(False)

  def leave(self, task, update, counts):
    return self._leave(update.result.optimizer_state, update.weight, counts)

  def merge(self, state, sums):
    mean = faults.choose(sums['weight'] > 0, self._mean(sums), state)
    return faults.if_finite(mean, state)


@dataclasses.dataclass(frozen=True)
class SharedMean(_Mean):
  """A state to which the mean of the clients' changes is added.

  A client's change is the `shared_change` of its training. A state that would
  not be finite stays as it was.

  Attributes:
    add: Takes the state, the mean change and the number of clients that have a
      weight, a `float32` scalar. Returns the next state.
  """

  add: Callable[
    [protocols.Structure, protocols.Structure, tf.Tensor], protocols.Structure
  ]

  field = 'shared'
  in_the_clear = 'what clients change of the state that they share'

  def read(self, task, sent):
    return task._replace(shared_state=sent), tf.constant(False)

  def leave(self, task, update, counts):
    count = tf.cast(update.weight > 0, tf.float32)
    return self._leave(
      update.result.shared_change, update.weight, counts, count=count
    )

  def merge(self, state, sums):
    new = self.add(state, self._mean(sums), sums['count'])
    return faults.if_finite(new, state)


def client_momentum(
  client_momentum: str | None,
  data_spec: client_data.ClientDataSpec,
  initial_state: Callable[[], protocols.Structure],
) -> tuple[Memory, ...]:
  """Returns the memories of clients whose momentum may outlive a round.

  Args:
    client_momentum: 'reset' or `None`: none, as momentum starts afresh in each
      round.
      'slot': a client goes on with the momentum that the slot's client of the
      round before left. 'mean': all clients go on with the mean of what the
      clients of the round before left (Yu, Jin and Yang, On the linear speedup
      analysis of communication efficient momentum SGD, arXiv 1905.03817,
      Algorithm 1); messages are twice as large.
    data_spec: Says how many slots there are.
    initial_state: Returns a fresh state of the client optimizer.

  Client data that do not name slots where they must are a `TypeError`, and so
  is a mean of optimizer states that makes no sense.
  """
  if client_momentum is None:
    return ()
  shared_settings.CLIENT_MOMENTUM.check(client_momentum)
  if client_momentum == 'reset':
    return ()
  if client_momentum == 'slot':
    data_spec.check_slots(client_momentum=client_momentum)
    return (SlotMemory(data_spec.num_slots, initial_state),)
  for leaf in tf.nest.flatten(initial_state()):
    if not tf.convert_to_tensor(leaf).dtype.is_floating:
      raise TypeError(
        "client_momentum='mean' does not fit a client optimizer whose state "
        'counts steps, as that of Adam does: use SGD with momentum, or '
        "client_momentum='reset'."
      )
  return (MeanState(initial_state),)
