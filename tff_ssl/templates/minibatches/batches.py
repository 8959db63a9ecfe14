"""The minibatches of one local training, cut from a stream."""

import collections
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tff_ssl import randomness
from tff_ssl.templates.minibatches import selection, streams

# The label of an example whose label may not be seen.
_HIDDEN = -1


class Batches(NamedTuple):
  """The minibatches of one local training.

  Attributes:
    num_steps: `int32` scalar, how many there are.
    indices: From a step to the indices of its examples, `int [b]`.
    is_hidden: From a step to a `bool` scalar, whether the labels of its
      minibatch are hidden from the process; `None` where they never are.
  """

  num_steps: tf.Tensor
  indices: Callable[[tf.Tensor], tf.Tensor]
  is_hidden: Callable[[tf.Tensor], tf.Tensor] | None = None

  def cut(
    self, examples: collections.OrderedDict[str, tf.Tensor], step: tf.Tensor
  ) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns the minibatch of a step."""
    batch = selection.gather(examples, self.indices(step))
    if self.is_hidden is not None:
      labels = batch['y']
      hidden = tf.fill(tf.shape(labels), _HIDDEN)
      batch['y'] = tf.where(self.is_hidden(step), hidden, labels)
    return batch


def draw_labelled(
  labels: tf.Tensor, batch_size: int, num_steps: tf.Tensor, seed: tf.Tensor
) -> Batches:
  """Draws full minibatches of those examples that have a label.

  Args:
    labels: `int32 [n]`, -1 where an example has none.
    batch_size: Examples in each; all are empty where no example has a label.
    num_steps: How many minibatches.
    seed: `int32 [2]`.
  """
  return repeated(
    streams.stream_of(labels, 'labelled'),
    batch_size,
    num_steps,
    randomness.fold_in(seed, randomness.Purpose.SHUFFLE_LABELLED),
  )


def _batches(num_steps, indices, stream):
  hidden = (lambda step: tf.constant(True)) if stream.is_hidden else None
  return Batches(num_steps, indices, hidden)


def repeated(
  stream: streams.Stream,
  batch_size: int,
  steps: tf.Tensor | int,
  seed: tf.Tensor,
) -> Batches:
  """Returns `steps` full minibatches; none if there are no examples."""
  order = stream.order(streams.passes_for(stream, batch_size, steps), seed)
  return _batches(
    tf.where(stream.size > 0, steps, 0),
    lambda step: order[step * batch_size : (step + 1) * batch_size],
    stream,
  )


def separate(
  stream: streams.Stream, batch_size: int, epochs: int, seed: tf.Tensor
) -> Batches:
  """Returns the minibatches of `epochs` passes, each cut for itself."""
  order = stream.order(epochs, seed)
  steps_per_epoch = -(-stream.size // batch_size)

  def indices(step):
    begin = (step % steps_per_epoch) * batch_size
    end = tf.minimum(begin + batch_size, stream.size)
    offset = (step // steps_per_epoch) * stream.size
    return order[offset + begin : offset + end]

  return _batches(epochs * steps_per_epoch, indices, stream)


def continuous(
  stream: streams.Stream, batch_size: int, epochs: int, seed: tf.Tensor
) -> Batches:
  """Returns the minibatches of `epochs` passes that are cut as one."""
  order = stream.order(epochs, seed)
  return _batches(
    -(-epochs * stream.size // batch_size),
    lambda step: order[step * batch_size : (step + 1) * batch_size],
    stream,
  )


def whole_sets(labels: tf.Tensor, epochs: int, seed: tf.Tensor) -> Batches:
  """Returns minibatches that are sets of examples, each once in a pass.

  Args:
    labels: `int32 [n]`, the set that an example lies in.
    epochs: Passes over the sets.
    seed: `int32 [2]`.
  """
  sets = streams.sets_of(labels)
  passes = streams.shuffled_passes(sets.nrows(out_type=tf.int32), epochs, seed)
  order = tf.reshape(passes, [-1])
  return Batches(tf.size(order), lambda step: sets[order[step]])
