"""A state of each of the C slots of a round, kept at the server.

A slot is a position among the participants of a round. The client that fills it
reads the slot's row of a stack `[C, ...]` and leaves a new one. In the code of
the grouping paper's authors a slot's momentum survives the round, while the
client in the slot changes. The server sends the whole stack to every client and
gets as much back from each, so this is for small models, and for comparison
with that code.
"""

import collections
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tff_ssl import protocols
from tff_ssl.templates import client_task, stacks
from tff_ssl.templates.memories import memory

_FIELD = 'slots'


@dataclasses.dataclass(frozen=True)
class SlotMemory:
  """The states of slots; a `Memory`.

  A client whose slot does not exist is invalid. A slot that several clients
  claim keeps its old state.

  Attributes:
    num_slots: C; the client data name the slot (`ClientDataSpec.num_slots`).
    initial_state: Returns the first state of a slot, a structure of numbers.
  """

  num_slots: int
  initial_state: Callable[[], protocols.Structure]

  in_the_clear = "the clients' momenta (client_momentum='reset' has none)"

  def initial(self) -> memory.Fields:
    """See `Memory.initial`."""
    rows = stacks.tile(self.initial_state(), self.num_slots)
    return collections.OrderedDict([(_FIELD, rows)])

  def send(self, state: memory.Fields) -> memory.Fields:
    """Sends all rows; see `Memory.send`."""
    return collections.OrderedDict([(_FIELD, state[_FIELD])])

  def read(
    self, task: client_task.ClientTask, sent: memory.Fields
  ) -> tuple[client_task.ClientTask, tf.Tensor]:
    """Puts the row of the client's slot into `slot_state`."""
    own = stacks.row(sent[_FIELD], task.slot)
    missing = stacks.is_missing(task.slot, self.num_slots)
    return task._replace(slot_state=own), missing

  def leave(
    self,
    task: client_task.ClientTask,
    update: client_task.LocalUpdate,
    counts: tf.Tensor,
  ) -> memory.Kept:
    """Leaves a new row for the client's slot."""
    rows = stacks.scatter(update.slot_state, task.slot, self.num_slots, counts)
    return memory.Kept(collections.OrderedDict([(_FIELD, rows)]))

  def merge(self, state: memory.Fields, sums: memory.Fields) -> memory.Fields:
    """See `Memory.merge`."""
    rows = stacks.merge(state[_FIELD], *sums[_FIELD])
    return collections.OrderedDict([(_FIELD, rows)])
