"""Minibatches whose kind is drawn, or whose mask is drawn anew each epoch."""

from collections.abc import Callable

import tensorflow as tf

from tff_ssl import randomness
from tff_ssl.templates.minibatches import batches, streams
from tff_ssl.templates.minibatches.selection import Selection


def either(
  labels: tf.Tensor,
  selection: Selection,
  steps: tf.Tensor | int,
  batch_size: int,
  seed: tf.Tensor,
) -> batches.Batches:
  """Returns full minibatches, each out of one of two streams, by lot.

  Args:
    labels: `int32 [n]`, -1 where an example has none.
    selection: The examples in question.
    steps: How many minibatches.
    batch_size: Examples in each.
    seed: `int32 [2]`.
  """
  labelled, unlabelled = (
    streams.stream_of(labels, rows) for rows in ('labelled', 'unlabelled')
  )
  is_labelled, count = _draw_kinds(
    selection, labelled.size, unlabelled.size, steps, seed
  )
  orders = [
    stream.order(
      streams.passes_for(stream, batch_size, steps),
      randomness.fold_in(seed, purpose),
    )
    for stream, purpose in (
      (labelled, randomness.Purpose.SHUFFLE_LABELLED),
      (unlabelled, randomness.Purpose.SHUFFLE),
    )
  ]
  order = tf.concat(orders, 0)

  def indices(step):
    start = count(step) * batch_size
    start += tf.where(is_labelled[step], 0, tf.size(orders[0]))
    return order[start : start + batch_size]

  return batches.Batches(
    tf.where(tf.size(labels) > 0, steps, 0),
    indices,
    lambda step: ~is_labelled[step],
  )


def redrawn(
  labels: tf.Tensor,
  selection: Selection,
  steps: tf.Tensor | int,
  batch_size: int,
  seed: tf.Tensor,
) -> batches.Batches:
  """Returns full minibatches under a mask that changes with each epoch.

  Args:
    labels: As in `either`.
    selection: Likewise.
    steps: Likewise.
    batch_size: Likewise.
    seed: Likewise.
  """
  num_examples = tf.shape(labels)[0]
  masked = streams.num_masked(num_examples, selection.redrawn_mask_ratio)
  sizes = (num_examples - masked, masked)
  epochs = -(-steps * batch_size // tf.maximum(num_examples, 1))
  orders = streams.shuffled_passes(
    num_examples, epochs, randomness.fold_in(seed, randomness.Purpose.SHUFFLE)
  )
  if selection.rows == 'either':
    is_labelled, count = _draw_kinds(selection, *sizes, steps, seed)
  else:
    is_labelled = tf.fill([steps], selection.rows == 'labelled')
    count = lambda step: step

  def indices(step):
    epoch = step * batch_size // num_examples
    begin = tf.where(is_labelled[step], masked, 0)
    size = tf.where(is_labelled[step], *sizes)
    places = (count(step) * batch_size + tf.range(batch_size)) % size
    return tf.gather(orders[epoch], begin + places)

  usable = (
    num_examples
    if selection.rows == 'either'
    else sizes[selection.rows == 'unlabelled']
  )
  return batches.Batches(
    tf.where(usable > 0, steps, 0), indices, lambda step: ~is_labelled[step]
  )


def _draw_kinds(
  selection, num_labelled, num_unlabelled, steps, seed
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
  """Draws of which kind each minibatch is.

  Returns:
    `bool [steps]`, whether it is labelled, and a function of the step to how
    many of its kind came before.
  """
  probability = selection.labelled_probability
  if probability is None:
    probability = num_labelled / tf.maximum(num_labelled + num_unlabelled, 1)
  probability = tf.cast(probability, tf.float32)
  probability = tf.where(num_labelled > 0, probability, 0.0)
  probability = tf.where(num_unlabelled > 0, probability, 1.0)
  draws = tf.random.stateless_uniform(
    [steps], randomness.fold_in(seed, randomness.Purpose.DRAW_KIND)
  )
  is_labelled = draws < probability
  labelled_so_far = tf.cumsum(tf.cast(is_labelled, tf.int32))

  def count(step):
    return tf.where(
      is_labelled[step], labelled_so_far[step] - 1, step - labelled_so_far[step]
    )

  return is_labelled, count
