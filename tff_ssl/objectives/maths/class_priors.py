"""What objectives share whose examples lie in sets with known class priors.

There `y` is the index of an example's set, and no class; see
`tff_ssl.templates.client_data`.
"""

import collections

import tensorflow as tf

from tff_ssl.objectives.maths import losses

Batch = collections.OrderedDict[str, tf.Tensor]


def of_sets(batch: Batch, sets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Returns the class priors of some sets, `float32 [n, d]`.

  Args:
    batch: A minibatch with the client's `class_priors`, `float32 [M, d]`.
    sets: `int32 [n]`, their indices. A row is NaN where the client has no such
      set, so that it is left out of the round and counted.
    logits: What the model gives, `float [..., d]`.

  Raises:
    ValueError: If model and class priors differ in their classes.
  """
  table = batch['class_priors']
  if table.shape[1] != logits.shape[-1]:
    raise ValueError(
      f'priors_shape={tuple(table.shape)} of data_spec has {table.shape[1]} '
      f'classes, but the model gives {logits.shape[-1]} outputs: build the '
      'model with as many classes.'
    )
  priors = tf.one_hot(sets, tf.shape(table)[0]) @ table
  is_known = tf.reduce_sum(priors, axis=-1, keepdims=True) > 0
  return tf.where(is_known, priors, float('nan'))


def count_right(
  classes: tf.Tensor, batch: Batch, mask: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
  """Counts right classes and known ones, for metrics.

  Args:
    classes: `int32 [n]`, as predicted or assigned.
    batch: The minibatch; without `true_y`, no class is known.
    mask: `float32 [n]` of zeros and ones, those that count; by default all.

  Returns:
    Two `float32` scalars.
  """
  if mask is None:
    mask = tf.ones(tf.shape(classes))
  known = {'y': tf.fill(tf.shape(classes), -1)}
  if 'true_y' in batch:
    known['true_y'] = batch['true_y']
  return losses.pseudo_label_accuracy(classes, mask, known)
