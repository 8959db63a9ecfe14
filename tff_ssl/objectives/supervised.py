"""Cross-entropy with true labels (paper 1, Eqs. 3 and 6)."""

import collections
import dataclasses
from typing import Any

import tensorflow as tf

from tff_ssl import randomness
from tff_ssl.objectives import losses


@dataclasses.dataclass(frozen=True)
class Supervised:
  """Mean cross-entropy on the weak view of the labelled examples of a batch.

  The mean runs over the examples that have a label; a batch without any has
  loss and gradient zero.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
  """

  views: Any

  metric_names = ('loss', 'accuracy')

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    x = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    logits = predict(x, training=True, seed=randomness.fold_in(seed, 1))
    mask = tf.cast(batch['y'] >= 0, tf.float32)
    total = tf.reduce_sum(losses.masked_cross_entropy(batch['y'], logits, mask))
    count = tf.reduce_sum(mask)
    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    correct = tf.reduce_sum(
      mask * tf.cast(tf.equal(predicted, batch['y']), tf.float32)
    )
    loss = total / tf.maximum(count, 1.0)
    return loss, collections.OrderedDict(
      loss=(total, count), accuracy=(correct, count)
    )
