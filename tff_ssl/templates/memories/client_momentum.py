"""Momentum of clients that outlives a round."""

import collections
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tff_ssl import protocols, shared_settings
from tff_ssl.templates import client_data, client_task, faults
from tff_ssl.templates.memories import memory, shared_mean
from tff_ssl.templates.memories.slot_memory import SlotMemory

_FIELD = 'momentum'


@dataclasses.dataclass(frozen=True)
class MeanState:
  """The mean of the states that the clients of a round leave; a `Memory`.

  All clients of the next round begin with it. A client weighs as much as its
  delta does. Without clients that count, or where the mean is not finite, the
  state stays as it was.

  Attributes:
    initial_state: Returns the first state, a structure of floats.
  """

  initial_state: Callable[[], protocols.Structure]

  in_the_clear = SlotMemory.in_the_clear

  def initial(self) -> memory.Fields:
    """See `Memory.initial`."""
    state = tf.nest.map_structure(tf.convert_to_tensor, self.initial_state())
    return collections.OrderedDict([(_FIELD, state)])

  def send(self, state: memory.Fields) -> memory.Fields:
    """Sends the mean; see `Memory.send`."""
    return collections.OrderedDict([(_FIELD, state[_FIELD])])

  def read(
    self, task: client_task.ClientTask, sent: memory.Fields
  ) -> tuple[client_task.ClientTask, tf.Tensor]:
    """Puts the mean into `slot_state`."""
    return task._replace(slot_state=sent[_FIELD]), tf.constant(False)

  def leave(
    self,
    task: client_task.ClientTask,
    update: client_task.LocalUpdate,
    counts: tf.Tensor,
  ) -> memory.Kept:
    """Leaves the client's weighted state."""
    sums = collections.OrderedDict(
      state=shared_mean.weighted(update.slot_state, update.weight),
      weight=update.weight,
    )
    return memory.Kept(
      collections.OrderedDict([(_FIELD, faults.zero_unless(counts, sums))])
    )

  def merge(self, state: memory.Fields, sums: memory.Fields) -> memory.Fields:
    """See `Memory.merge`."""
    own, old = sums[_FIELD], state[_FIELD]
    mean = shared_mean.mean_of(own['state'], own['weight'])
    mean = faults.choose(own['weight'] > 0, mean, old)
    return collections.OrderedDict([(_FIELD, faults.if_finite(mean, old))])


def client_momentum(
  client_momentum: str,
  data_spec: client_data.ClientDataSpec,
  initial_state: Callable[[], protocols.Structure],
) -> tuple[memory.Memory, ...]:
  """Returns the memories of clients whose momentum may outlive a round.

  Args:
    client_momentum: 'reset': none, as momentum starts afresh in each round.
      'slot': a client goes on with the momentum that the slot's client of the
      round before left. 'mean': all clients go on with the mean of what the
      clients of the round before left (Yu, Jin and Yang, On the linear speedup
      analysis of communication efficient momentum SGD, arXiv 1905.03817,
      Algorithm 1); messages are twice as large.
    data_spec: The type of client data, which says how many slots there are.
    initial_state: Returns a fresh state of the client optimizer.

  Raises:
    ValueError: If `client_momentum` is unknown.
    TypeError: If the client data do not name slots where they must, or a mean
      of optimizer states makes no sense.
  """
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
