"""One state at the server, which all clients read and change."""

import collections
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tff_ssl import protocols
from tff_ssl.templates import client_task, faults
from tff_ssl.templates.memories import memory

_FIELD = 'shared'


def weighted(
  value: protocols.Structure, weight: tf.Tensor
) -> protocols.Structure:
  """Returns what a client adds to a weighted sum.

  Args:
    value: Structure of float tensors.
    weight: `float32` scalar.
  """
  return tf.nest.map_structure(
    lambda leaf: tf.cast(weight, leaf.dtype) * leaf, value
  )


def mean_of(
  total: protocols.Structure, weight: tf.Tensor
) -> protocols.Structure:
  """Returns the weighted mean; 0 where nobody has a weight.

  Args:
    total: The weighted sum, a structure of float tensors.
    weight: The sum of the weights, `float32` scalar.
  """
  return tf.nest.map_structure(
    lambda leaf: tf.math.divide_no_nan(leaf, tf.cast(weight, leaf.dtype)), total
  )


@dataclasses.dataclass(frozen=True)
class SharedMean:
  """A state to which the mean of the clients' changes is added; a `Memory`.

  A client's change is the `shared_change` of its `LocalUpdate`. It weighs as
  much as the client's delta. A state that would not be finite stays as it was.

  Attributes:
    initial_state: Returns the first state, a structure of tensors.
    add: Takes the state, the mean change and the number of clients that have a
      weight, a `float32` scalar. Returns the next state.
  """

  initial_state: Callable[[], protocols.Structure]
  add: Callable[
    [protocols.Structure, protocols.Structure, tf.Tensor], protocols.Structure
  ]

  in_the_clear = 'what clients change of the state that they share'

  def initial(self) -> memory.Fields:
    """See `Memory.initial`."""
    return collections.OrderedDict([(_FIELD, self.initial_state())])

  def send(self, state: memory.Fields) -> memory.Fields:
    """Sends all of the state; see `Memory.send`."""
    return collections.OrderedDict([(_FIELD, state[_FIELD])])

  def read(
    self, task: client_task.ClientTask, sent: memory.Fields
  ) -> tuple[client_task.ClientTask, tf.Tensor]:
    """Puts the state into `shared_state`."""
    return task._replace(shared_state=sent[_FIELD]), tf.constant(False)

  def leave(
    self,
    task: client_task.ClientTask,
    update: client_task.LocalUpdate,
    counts: tf.Tensor,
  ) -> memory.Kept:
    """Leaves the client's weighted change."""
    sums = collections.OrderedDict(
      change=weighted(update.shared_change, update.weight),
      weight=update.weight,
      count=tf.cast(update.weight > 0, tf.float32),
    )
    return memory.Kept(
      collections.OrderedDict([(_FIELD, faults.zero_unless(counts, sums))])
    )

  def merge(self, state: memory.Fields, sums: memory.Fields) -> memory.Fields:
    """See `Memory.merge`."""
    own = sums[_FIELD]
    mean = mean_of(own['change'], own['weight'])
    new = self.add(state[_FIELD], mean, own['count'])
    return collections.OrderedDict(
      [(_FIELD, faults.if_finite(new, state[_FIELD]))]
    )
