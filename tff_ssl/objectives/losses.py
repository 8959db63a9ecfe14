"""Pure loss maths, free of models and augmentation; losses are in nats."""

import collections
from collections.abc import Sequence

import tensorflow as tf


def check_logits(logits: tf.Tensor) -> None:
  """Raises `ValueError` unless they are one classifier's, `[n, d]`, d >= 2."""
  if tf.nest.is_nested(logits):
    found = f'a {type(logits).__name__} of outputs'
  elif len(logits.shape) != 2 or logits.shape[1] == 1:
    found = f'outputs of shape {list(logits.shape)}'
  else:
    return
  raise ValueError(
    f'The model gives {found}, but a classifier gives one tensor of logits, of '
    'shape [examples, classes], and two outputs where there are two classes: '
    'let it end in a single Dense(number of classes) without an activation.'
  )


def masked_cross_entropy(
  labels: tf.Tensor, logits: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
  """Returns the cross-entropy of each example times the mask, `float32 [n]`.

  Labels under a zero mask may be out of range. Weights are from 0 to 1.
  """
  check_logits(logits)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    labels=tf.where(mask > 0, labels, 0), logits=tf.cast(logits, tf.float32)
  )
  return mask * losses


def supervised(
  labels: tf.Tensor,
  logits: tf.Tensor,
  class_weights: Sequence[float] | None = None,
) -> tuple[tf.Tensor, collections.OrderedDict]:
  """Mean cross-entropy over the examples that have a label, and its counts.

  Args:
    labels: `int32 [n]`, -1 where there is none.
    logits: `float [n, d]`.
    class_weights: d factors of the loss of an example, by its class, as in
      Keras; by default 1.

  Returns:
    The loss, 0 where no example has a label; and `loss`, without the weights,
    and `accuracy`, each a pair of numerator and denominator.
  """
  mask = tf.cast(labels >= 0, tf.float32)
  losses = masked_cross_entropy(labels, logits, mask)
  total = tf.reduce_sum(losses)
  weighted = total
  if class_weights is not None:
    if len(class_weights) != logits.shape[-1]:
      raise ValueError(
        f'class_weights has {len(class_weights)} numbers, and there are '
        f'{logits.shape[-1]} classes: give one for each.'
      )
    weights = tf.gather(
      tf.constant(class_weights, tf.float32), tf.maximum(labels, 0)
    )
    weighted = tf.reduce_sum(weights * losses)
  count = tf.reduce_sum(mask)
  predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
  correct = tf.reduce_sum(
    mask * tf.cast(tf.equal(predicted, labels), tf.float32)
  )
  return weighted / tf.maximum(count, 1.0), collections.OrderedDict(
    loss=(total, count), accuracy=(correct, count)
  )


def divergence(
  teacher_logits: tf.Tensor, student_logits: tf.Tensor
) -> tf.Tensor:
  """Returns KL(teacher, student) of each example, `float32 [...]`.

  Gradients flow through the teacher, too; the student is broadcast to it.
  """
  log_teacher = tf.nn.log_softmax(tf.cast(teacher_logits, tf.float32))
  log_student = tf.nn.log_softmax(tf.cast(student_logits, tf.float32))
  terms = tf.exp(log_teacher) * (log_teacher - log_student)
  return tf.reduce_sum(terms, axis=-1)


def majority_vote(
  own_logits: tf.Tensor, other_logits: tf.Tensor, present: tf.Tensor
) -> tf.Tensor:
  """Returns the class that most models choose, `int32 [n]`; of ties the lowest.

  Of the logits `[h, n, d]` of others, those that are `present` vote.
  """
  num_classes = tf.shape(own_logits)[-1]
  votes = tf.one_hot(tf.argmax(other_logits, axis=-1), num_classes)
  votes *= tf.cast(present, tf.float32)[:, tf.newaxis, tf.newaxis]
  own = tf.one_hot(tf.argmax(own_logits, axis=-1), num_classes)
  return tf.argmax(
    own + tf.reduce_sum(votes, axis=0), axis=-1, output_type=tf.int32
  )


def mean_divergence(
  teacher_logits: tf.Tensor, student_logits: tf.Tensor, present: tf.Tensor
) -> tf.Tensor:
  """Mean over teachers of KL(teacher, student); gradients are the student's.

  Of the logits `[h, n, d]` of teachers, those that are `present` count; without
  any, it is 0.
  """
  each = divergence(tf.stop_gradient(teacher_logits), student_logits)
  counts = tf.cast(present, tf.float32)
  return tf.math.divide_no_nan(
    tf.einsum('h,hn->n', counts, each), tf.reduce_sum(counts)
  )


def pseudo_label_accuracy(
  labels: tf.Tensor,
  mask: tf.Tensor,
  batch: collections.OrderedDict[str, tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
  """Counts right pseudo-labels and known ones, by weight.

  The truth is `true_y`, where the minibatch has it, or `y`. Besides this, only
  `TwoExperts(experts='truth')` reads `true_y`.
  """
  truth = batch.get('true_y', batch['y'])
  known = mask * tf.cast(truth >= 0, tf.float32)
  correct = known * tf.cast(tf.equal(labels, truth), tf.float32)
  return tf.reduce_sum(correct), tf.reduce_sum(known)
