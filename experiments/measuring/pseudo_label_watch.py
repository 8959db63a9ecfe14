"""Tells a user when the pseudo-labels of a run are likely to be wrong.

Nobody knows the labels of the clients' examples, so a run must not look at
them. The server's labelled examples are known: shown to the same model in the
same weak view, they tell how many of its confident predictions are right. They
are what the server trains on, so the figure errs on the high side: where even
these pseudo-labels are mostly wrong, those of the clients are.
"""

import numpy as np
import tensorflow as tf
import tqdm

from datasets.sources import source
from experiments.measuring import evaluation
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

  def __call__(self, round_num, weights, row) -> dict[str, float]:
    """Measures a model, and warns if it is the first that looks wrong.

    Args:
      round_num: Rounds done.
      weights: `ModelWeights` of arrays.
      row: The metrics of the round; `mask_rate` is the share of the clients'
        examples that got a pseudo-label.

    Returns:
      `server_mask_rate`, the share of the server's examples of which the model
      is confident, and `server_pseudo_label_accuracy`, the share of right
      predictions among them; without the latter where there are none.
    """
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


def build(settings, spec, model, views, data) -> PseudoLabelWatch | None:
  """Returns the watch of a run, or `None` where there is nothing to watch.

  Args:
    settings: From `experiments.config.settings.make`.
    spec: The process's `ProcessSpec`.
    model: The run's `FunctionalModel`.
    views: The run's augmentation.
    data: The run's `RunData`.
  """
  makes_pseudo_labels = settings.threshold is not None
  if not spec.has_server_training or not makes_pseudo_labels:
    return None
  server, train = data.partition.server_indices, data.source.train
  return PseudoLabelWatch(
    model,
    views,
    source.Split(train.images[server], train.labels[server]),
    threshold=settings.threshold,
    seed=settings.seed,
  )
