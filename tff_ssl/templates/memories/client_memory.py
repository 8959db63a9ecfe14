"""A state of each client, on the client's own disk."""

import collections
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tff_ssl import protocols
from tff_ssl.templates import client_state, client_task
from tff_ssl.templates.memories import memory


@dataclasses.dataclass(frozen=True)
class ClientMemory:
  """The clients' own states; a `Memory` of which the server sees nothing.

  Attributes:
    folder: Absolute path of the folder where clients keep their states; see
      `tff_ssl.templates.client_state`.
    initial_state: Returns the first state of a client, from its `ClientTask`.
  """

  folder: str
  initial_state: Callable[[client_task.ClientTask], protocols.Structure]

  in_the_clear = ''

  def __post_init__(self):
    client_state.check_folder(self.folder)

  def initial(self) -> memory.Fields:
    """See `Memory.initial`."""
    return collections.OrderedDict()

  def send(self, state: memory.Fields) -> memory.Fields:
    """See `Memory.send`."""
    return collections.OrderedDict()

  def read(
    self, task: client_task.ClientTask, sent: memory.Fields
  ) -> tuple[client_task.ClientTask, tf.Tensor]:
    """Reads the client's newest state into `client_state`."""
    own, _ = client_state.read(
      self.folder, task, lambda: self.initial_state(task)
    )
    return task._replace(client_state=own), tf.constant(False)

  def leave(
    self,
    task: client_task.ClientTask,
    update: client_task.LocalUpdate,
    counts: tf.Tensor,
  ) -> memory.Kept:
    """Writes the client's new state."""
    written = client_state.write(self.folder, task, update.client_state, counts)
    return memory.Kept(collections.OrderedDict(), [written])

  def merge(self, state: memory.Fields, sums: memory.Fields) -> memory.Fields:
    """See `Memory.merge`."""
    return collections.OrderedDict()
