"""The interface of all memories."""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tff_ssl.templates import client_task

# Fields of the client work's state, by name, or what belongs to them.
Fields = collections.OrderedDict[str, Any]


class Kept(NamedTuple):
  """What a client leaves in a memory at the end of its round.

  Attributes:
    sums: By field, numbers that are summed over clients, for `Memory.merge`.
      They are zero if the client does not count.
    written: Operations that the client's result has to wait for.
  """

  sums: Fields
  written: Sequence[tf.Operation] = ()


class Memory(Protocol):
  """Something that outlives a round.

  A memory owns fields of the client work's state, which lies at the server. One
  that keeps nothing there has no fields.

  Attributes:
    in_the_clear: What of the clients the server sums in the clear, in a few
      words, with the remedy where there is one; '' for nothing.
  """

  in_the_clear: str

  def initial(self) -> Fields:
    """Returns the fields before the first round."""

  def send(self, state: Fields) -> Fields:
    """Returns what clients are sent of the fields.

    Args:
      state: The whole state of the client work, as in `merge`.
    """

  def read(
    self, task: client_task.ClientTask, sent: Fields
  ) -> tuple[client_task.ClientTask, tf.Tensor]:
    """Puts into a client's task what the memory holds for the client.

    Args:
      task: The task so far.
      sent: What `send` returned, among the fields of other memories.

    Returns:
      The task, and a `bool` scalar: whether the memory has no place for this
      client. Such a client is left out of the round.
    """

  def leave(
    self,
    task: client_task.ClientTask,
    update: client_task.LocalUpdate,
    counts: tf.Tensor,
  ) -> Kept:
    """Returns what a client leaves.

    Args:
      task: What the client was given.
      update: What its work has given.
      counts: `bool` scalar: whether the client counts.
    """

  def merge(self, state: Fields, sums: Fields) -> Fields:
    """Returns the fields after a round.

    Args:
      state: The state before it.
      sums: `Kept.sums` of all memories, summed over clients.
    """
