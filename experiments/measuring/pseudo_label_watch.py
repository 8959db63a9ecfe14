"""Tells, round by round, how right the pseudo-labels of a run are likely to be.

A run must not look at the labels of the clients' examples. It may look at the
server's labelled examples: the model sees them in the same weak view, and the
watch counts how many confident predictions are right. The server trains on
these examples, so this accuracy is too high as an estimate for the clients. If
most pseudo-labels are wrong even here, most of the clients' are wrong, too: the
run is collapsing. The watch then warns, or the run stops or goes back
(`--on_collapse`).

The model is the one that is evaluated. With a moving average (`--ema_decay`)
that is not the one that labels where clients label with their own models: a
collapse is seen later then.
"""

import numpy as np
import tensorflow as tf
import tqdm

from datasets.sources import source
from experiments.measuring import pseudo_label_counts
from experiments.measuring.finished_round import FinishedRound

# A share of the clients' examples, in the round, that counts as many.
_MANY = 0.2
# A share of the pseudo-labels that counts as few.
_FEW_RIGHT = 0.5
# Fewer confident predictions say nothing.
_LEAST_CONFIDENT = 10


class CollapseError(RuntimeError):
  """Most pseudo-labels are likely wrong, and the run is not to go on then.

  Attributes:
    finished: The `FinishedRound` in which this was found.
  """

  def __init__(self, message: str, finished: FinishedRound):
    super().__init__(message)
    self.finished = finished


def in_words(row) -> str | None:
  """Returns what a person reads of the pseudo-labels of a round.

  Args:
    row: The row of metrics.csv.

  Returns:
    `None` where the round was not watched, or no client labelled anything.
  """
  share_right = row.get('server_pseudo_label_accuracy')
  if share_right is None or not row.get('mask_rate'):
    return None
  words = (
    f'{row["mask_rate"]:.0%} of examples, estimated {share_right:.0%} right'
  )
  return f'{words}: collapsing' if row['is_collapsing'] else words


class PseudoLabelWatch:
  """Measures pseudo-labels on the server's labels, and warns once."""

  def __init__(
    self,
    model,
    views,
    split,
    *,
    select,
    seed,
    on_collapse='warn',
    tell=tqdm.tqdm.write,
  ):
    """Prepares the measurement.

    Args:
      model: A `FunctionalModel`.
      views: Gives the weak view.
      split: `datasets.sources.source.Split` of the server's labelled examples.
      select: From logits to pseudo-labels and their weights, as the clients do.
      seed: The run's seed.
      on_collapse: 'warn', once; with 'stop' or 'rewind' `check` raises, too.
      tell: Called with the text of the warning; by default it is printed, above
        a progress bar where there is one.
    """
    self._on_collapse = on_collapse
    self._tell = tell
    self._has_warned = False

    def count(labels, guesses, mask, num_classes):
      return (
        pseudo_label_counts.by_class(guesses, mask, num_classes),
        tf.reduce_sum(pseudo_label_counts.right(labels, guesses, mask)),
      )

    self._counts = pseudo_label_counts.PseudoLabelCounts(
      model, views, split, select=select, seed=seed, count=count
    )

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Measures a round that is tested, and warns once if it is collapsing.

    Args:
      finished: The round; `mask_rate` in its row is the share of the clients'
        examples that got a pseudo-label.

    Returns:
      `server_mask_rate`, the share of the server's examples on which the model
      is confident; `server_pseudo_label_accuracy`, the share of right
      predictions among these; `server_pseudo_label_top_share`, the share of
      the class among them that is predicted most often; and `is_collapsing`, 1
      where many of the clients' examples got a pseudo-label and fewer than half
      of these predictions are right, or else 0. The second and the third are
      missing where no prediction is confident. Nothing in a round that is not
      tested.
    """
    if not finished.is_evaluated:
      return {}
    round_num, row = finished.number, finished.row
    of_class, right = self._counts(finished)
    confident = np.sum(of_class)
    measured = {
      'server_mask_rate': float(confident / self._counts.num_examples),
      'is_collapsing': 0,
    }
    if not confident:
      return measured
    share_right = float(right / confident)
    is_collapsing = (
      row.get('mask_rate', 0) >= _MANY
      and confident >= _LEAST_CONFIDENT
      and share_right < _FEW_RIGHT
    )
    if is_collapsing and not self._has_warned:
      self._has_warned = True
      self._tell(
        f'Warning: in round {round_num}, {row["mask_rate"]:.0%} of the '
        "clients' examples got a pseudo-label, but on the server's own "
        f'labelled examples only {share_right:.0%} of such predictions are '
        'right, so that clients are likely to train on wrong labels. Compare '
        'with --process=server_only, and see --process=grouping_robust.'
      )
    return {
      **measured,
      'is_collapsing': int(is_collapsing),
      'server_pseudo_label_accuracy': share_right,
      'server_pseudo_label_top_share': float(np.max(of_class) / confident),
    }

  def check(self, finished: FinishedRound) -> None:
    """Ends the training of a run that is collapsing, where that is asked for.

    Args:
      finished: A round that was measured; it has its row and its checkpoint.

    Raises:
      CollapseError: If it is collapsing and `on_collapse` is not 'warn'.
    """
    if self._on_collapse != 'warn' and finished.row.get('is_collapsing'):
      raise CollapseError(
        f'Stopped after round {finished.number} (--on_collapse='
        f'{self._on_collapse}): pseudo-labels for {in_words(finished.row)}. Go '
        'on with --on_collapse=warn or rewind, or start anew with fewer '
        'pseudo-labels (--threshold, --min_confidence) or with '
        '--process=grouping_robust.',
        finished,
      )


def build(
  model,
  views,
  data,
  *,
  has_server_training: bool,
  select,
  seed: int,
  on_collapse: str,
) -> PseudoLabelWatch | None:
  """Returns the watch of a run, or `None` where there is nothing to watch.

  Args:
    model: The run's `FunctionalModel`.
    views: The run's augmentation.
    data: The run's `RunData`.
    has_server_training: Whether the server trains on labelled examples.
    select: What `pseudo_label_counts.selection_of` returns.
    seed: The run's seed.
    on_collapse: 'warn', 'stop' or 'rewind'.
  """
  if not has_server_training or select is None:
    return None
  server, train = data.partition.server_indices, data.source.training
  return PseudoLabelWatch(
    model,
    views,
    source.Split(train.examples[server], train.labels[server]),
    select=select,
    seed=seed,
    on_collapse=on_collapse,
  )
