"""Accuracy and loss of a model on the whole test split."""

import hashlib

import numpy as np
import tensorflow as tf

# Bounds the memory of one forward pass.
_BATCH = 512


class Evaluator:
  """Evaluates weights on a test split, in this process, without
  augmentation."""

  def __init__(self, model, views, split):
    """Prepares the evaluation.

    Args:
      model: A `FunctionalModel`.
      views: Gives `plain`, the normalised images.
      split: `datasets.source.Split`.
    """
    self._batches = [
      (
        tf.constant(split.images[start : start + _BATCH]),
        tf.constant(split.labels[start : start + _BATCH], tf.int32),
      )
      for start in range(0, len(split.labels), _BATCH)
    ]
    self._num_examples = len(split.labels)

    @tf.function
    def count(trainable, non_trainable, images, labels):
      logits, _ = model.predict(
        trainable, non_trainable, views.plain(images), training=False
      )
      logits = tf.cast(logits, tf.float32)
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
      predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
      correct = tf.cast(tf.equal(predicted, labels), tf.int32)
      return tf.reduce_sum(losses), tf.reduce_sum(correct)

    self._count = count

  def __call__(self, weights) -> dict[str, float]:
    """Returns `accuracy` in [0, 1] and `test_loss` in nats per example.

    Args:
      weights: `tff.learning.models.ModelWeights` of arrays.
    """
    trainable = [tf.constant(value) for value in weights.trainable]
    non_trainable = [tf.constant(value) for value in weights.non_trainable]
    loss, correct = 0.0, 0
    for images, labels in self._batches:
      batch_loss, batch_correct = self._count(
        trainable, non_trainable, images, labels
      )
      loss += float(batch_loss)
      correct += int(batch_correct)
    return {
      'accuracy': correct / self._num_examples,
      'test_loss': loss / self._num_examples,
    }


def weights_sha256(weights) -> str:
  """Returns the SHA-256 of all weights' bytes, trainable ones first."""
  digest = hashlib.sha256()
  for value in [*weights.trainable, *weights.non_trainable]:
    digest.update(np.ascontiguousarray(value).tobytes())
  return digest.hexdigest()
