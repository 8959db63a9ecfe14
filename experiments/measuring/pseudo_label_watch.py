"""Warns when the pseudo-labels of a run are likely to be wrong.

A run must not look at the labels of the clients' examples. It may look at the
server's labelled examples: the model sees them in the same weak view, and the
watch counts how many confident predictions are right. The server trains on
these examples, so this accuracy is too high as an estimate for the clients. If
most pseudo-labels are wrong even here, most of the clients' are wrong, too.
"""

import numpy as np
import tensorflow as tf
import tqdm

from datasets.sources import source
from experiments.measuring import evaluation
from experiments.measuring.finished_round import FinishedRound
from tff_ssl import randomness
from tff_ssl.objectives.maths import losses

# A share of the clients' examples, in the round, that counts as many.
_MANY = 0.2
# A share of the pseudo-labels that counts as few.
_FEW_RIGHT = 0.5
# Fewer confident predictions say nothing.
_LEAST_CONFIDENT = 10


class PseudoLabelWatch:
  """Measures pseudo-labels on the server's labels, and warns once."""

  def __init__(
    self, model, views, split, *, threshold, seed, tell=tqdm.tqdm.write
  ):
    """Prepares the measurement.

    Args:
      model: A `FunctionalModel`.
      views: Gives the weak view.
      split: `datasets.sources.source.Split` of the server's labelled examples.
      threshold: tau of the run.
      seed: The run's seed.
      tell: Called with the text of the warning; by default it is printed, above
        a progress bar where there is one.
    """
    self._batches = evaluation.batches(split)
    self._seed = seed
    self._tell = tell
    self._has_warned = False

    @tf.function
    def count(trainable, non_trainable, images, labels, seed):
      logits, _ = model.predict(
        trainable, non_trainable, views.weak(images, seed), training=False
      )
      guesses, mask = losses.pseudo_labels(logits, threshold)
      right = mask * tf.cast(tf.equal(guesses, labels), tf.float32)
      return tf.reduce_sum(mask), tf.reduce_sum(right)

    self._count = count

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Measures a round that is tested, and warns once if it looks wrong.

    Args:
      finished: The round; `mask_rate` in its row is the share of the clients'
        examples that got a pseudo-label.

    Returns:
      `server_mask_rate`, the share of the server's examples on which the model
      is confident, and `server_pseudo_label_accuracy`, the share of right
      predictions among these. The latter is missing where there are none.
      Nothing in a round that is not tested.
    """
    if not finished.is_evaluated:
      return {}
    round_num, weights, row = finished.number, finished.weights, finished.row
    trainable = [tf.constant(value) for value in weights.trainable]
    non_trainable = [tf.constant(value) for value in weights.non_trainable]
    seed = randomness.fold_in(
      randomness.server_seed(tf.constant(self._seed), tf.constant(round_num)),
      randomness.Purpose.MEASURE,
    )
    counts = [
      self._count(
        trainable,
        non_trainable,
        images,
        labels,
        randomness.fold_in(seed, place),
      )
      for place, (images, labels) in enumerate(self._batches)
    ]
    confident, right = np.sum(counts, axis=0)
    size = sum(len(labels) for _, labels in self._batches)
    measured = {'server_mask_rate': float(confident / size)}
    if not confident:
      return measured
    share_right = float(right / confident)
    if (
      not self._has_warned
      and row.get('mask_rate', 0) >= _MANY
      and confident >= _LEAST_CONFIDENT
      and share_right < _FEW_RIGHT
    ):
      self._has_warned = True
      self._tell(
        f'Warning: in round {round_num}, {row["mask_rate"]:.0%} of the '
        "clients' examples got a pseudo-label, but on the server's own "
        f'labelled examples only {share_right:.0%} of such predictions are '
        'right, so that clients are likely to train on wrong labels. Compare '
        'with --process=server_only.'
      )
    return {**measured, 'server_pseudo_label_accuracy': share_right}


def build(
  model, views, data, *, has_server_training: bool, threshold, seed: int
) -> PseudoLabelWatch | None:
  """Returns the watch of a run, or `None` where there is nothing to watch.

  Args:
    model: The run's `FunctionalModel`.
    views: The run's augmentation.
    data: The run's `RunData`.
    has_server_training: Whether the server trains on labelled examples.
    threshold: tau; `None` where the process makes no pseudo-labels by one.
    seed: The run's seed.
  """
  if not has_server_training or threshold is None:
    return None
  server, train = data.partition.server_indices, data.source.train
  return PseudoLabelWatch(
    model,
    views,
    source.Split(train.images[server], train.labels[server]),
    threshold=threshold,
    seed=seed,
  )
