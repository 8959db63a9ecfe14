"""Labels examples as clients do, and tells how right that is.

The model that is evaluated sees the weak view, and the run's rule selects
pseudo-labels. Those of training may be others: clients make them with their own
models, FedLabel and FedMatch in the plain view, `fedavg_robust` in line with
the labels of each client, and not at clients of few classes. Rules that adapt
to a minibatch see batches of 512 examples here.

A run must not look at the labels of the clients' examples. It may look at the
server's labelled examples, on which the watch counts how many confident
predictions are right. The server trains on these, so this accuracy is too high
as an estimate for the clients. If most pseudo-labels are wrong even here, most
of the clients' are wrong, too: the run is collapsing. The watch then warns, or
the run stops or goes back (`--on_collapse`). With a moving average
(`--ema_decay`) clients may label with models of their own, and a collapse is
seen later.

Pseudo-labels by class are counted on a sample of the clients' examples, against
the labels that the simulation hides. Nothing that trains sees them.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tqdm

from datasets.sources import source
from experiments.artifacts import csv_files
from experiments.config.command_line import UsageError
from experiments.measuring import evaluation
from experiments.measuring.evaluation import FinishedRound
from tff_ssl import randomness
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.objectives import selection

# A share of the clients' examples, in the round, that counts as many.
_MANY = 0.2
# A share of the pseudo-labels that counts as few.
_FEW_RIGHT = 0.5
# Fewer confident predictions say nothing.
_LEAST_CONFIDENT = 10


def selection_of(settings):
  """Returns how a run's clients select pseudo-labels and weigh them.

  `None` where the process makes none that confidence decides about.
  """
  rule = settings.pseudo_label_rule or 'fixed'
  if settings.threshold is None and rule == 'fixed':
    return None
  return functools.partial(
    selection.pseudo_labels,
    threshold=settings.threshold,
    rule=rule,
    min_confidence=settings.min_confidence or 0.0,
    max_energy=settings.max_energy,
  )


def _counter(model, views, split: source.Split, count, *, select, seed: int):
  """Returns the function that counts pseudo-labels of a split after a round.

  It sums over batches what `count` returns for the true labels, the
  pseudo-labels, their weights `float32 [n]` and the number of classes. `select`
  is from `selection_of`.
  """
  batches = evaluation.batches(split)

  @tf.function(autograph=False)
  def count_batch(weights, images, labels, seed):
    logits, _ = model.predict(
      weights.trainable,
      weights.non_trainable,
      views.weak(images, seed),
      training=False,
    )
    return count(labels, *select(logits), tf.shape(logits)[-1])

  def sums(finished: FinishedRound) -> list[np.ndarray]:
    weights = tf.nest.map_structure(tf.constant, finished.weights)
    of_round = randomness.fold_in(
      randomness.server_seed(tf.constant(seed), tf.constant(finished.number)),
      Purpose.MEASURE,
    )
    counts = [
      count_batch(weights, images, labels, randomness.fold_in(of_round, batch))
      for batch, (images, labels) in enumerate(batches)
    ]
    return [
      np.sum([part.numpy() for part in parts], axis=0)
      for parts in zip(*counts, strict=True)
    ]

  return sums


def _by_class(classes, weights, num_classes) -> tf.Tensor:
  """Returns the sum of the weights of each class, `float32 [d]`."""
  return tf.math.bincount(
    classes, weights, minlength=num_classes, dtype=tf.float32
  )


def _right(labels, guesses, weights) -> tf.Tensor:
  """Returns the weights of the right pseudo-labels, and 0 for the others."""
  return weights * tf.cast(tf.equal(guesses, labels), tf.float32)


class CollapseError(RuntimeError):
  """Most pseudo-labels are likely wrong, and the run is not to go on then.

  Attributes:
    finished: The `FinishedRound` in which this was found.
  """

  def __init__(self, message: str, finished: FinishedRound):
    super().__init__(message)
    self.finished = finished


def in_words(row) -> str | None:
  """Returns what a person reads of the pseudo-labels in a row of metrics.csv.

  `None` where the round was not watched, or no client labelled anything.
  """
  share_right = row.get('server_pseudo_label_accuracy')
  if share_right is None or not row.get('mask_rate'):
    return None
  words = (
    f'{row["mask_rate"]:.0%} of examples, on the labels of the server '
    f'{share_right:.0%} right'
  )
  return f'{words}: collapsing' if row['is_collapsing'] else words


def _right_and_by_class(labels, guesses, weights, num_classes):
  return [
    _by_class(guesses, weights, num_classes),
    tf.reduce_sum(_right(labels, guesses, weights)),
  ]


class PseudoLabelWatch:
  """Measures pseudo-labels on the server's labels, and warns once."""

  def __init__(
    self,
    model,
    views,
    split: source.Split,
    *,
    select,
    seed: int,
    on_collapse: str = 'warn',
    tell=tqdm.tqdm.write,
  ):
    """Prepares the measurement on the server's labelled examples.

    With 'stop' or 'rewind' as `on_collapse`, `check` raises. `tell` prints the
    warning, by default above a progress bar where there is one.
    """
    self._sums = _counter(
      *(model, views, split, _right_and_by_class), select=select, seed=seed
    )
    self._on_collapse = on_collapse
    self._tell = tell
    self._has_warned = False
    self._num_examples = len(split.labels)

  def __call__(self, finished: FinishedRound) -> dict[str, float]:
    """Measures a round that is tested, and warns once if it is collapsing.

    Returns:
      `server_mask_rate`, the share of the server's examples on which the model
      is confident; and where there are any, `server_pseudo_label_accuracy`, the
      share of right predictions among these, and
      `server_pseudo_label_top_share`, that of the class among them that is
      predicted most often. `is_collapsing` is 1 where many of the clients'
      examples got a pseudo-label (`mask_rate` in the row) and fewer than half
      of these predictions are right, or else 0.
    """
    if not finished.is_evaluated:
      return {}
    row = finished.row
    of_class, right = self._sums(finished)
    confident = np.sum(of_class)
    measured = {
      'server_mask_rate': float(confident / self._num_examples),
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
        f'Warning: in round {finished.number}, {row["mask_rate"]:.0%} of the '
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

    The round is measured; it has its row and its checkpoint.
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


def server_examples(data) -> source.Split:
  """Returns the server's labelled examples of a run's `RunData`."""
  server, train = data.partition.server_indices, data.source.training
  return source.Split(train.examples[server], train.labels[server])


def draw(data, number: int, seed: int) -> source.Split:
  """Draws examples of the clients whose label is hidden, in random order.

  They are all there are where these are fewer than `number`.
  """
  if not len(data.hidden_from_clients):
    raise UsageError(
      f'--pseudo_label_examples={number} needs unlabelled examples of clients '
      'whose label the data hold, and there is none: give 0.'
    )
  rng = generator(Purpose.MEASURED_EXAMPLES, seed)
  # In random order: rules that adapt to a batch must not see one class alone.
  drawn = rng.permutation(data.hidden_from_clients)[:number]
  train = data.source.training
  return source.Split(train.examples[drawn], train.labels[drawn])


def _all_by_class(labels, guesses, weights, num_classes):
  right = _right(labels, guesses, weights)
  return [
    _by_class(classes, counted, num_classes)
    for classes, counted in (
      (labels, tf.ones_like(weights)),
      (labels, weights),
      (labels, right),
      (guesses, weights),
    )
  ]


class PseudoLabelsByClass:
  """Counts pseudo-labels by class in the rounds that are tested.

  Attributes:
    log: Gets the rows; it is open as long as rounds are measured.
  """

  def __init__(
    self,
    model,
    views,
    split: source.Split,
    class_names: Sequence[str],
    *,
    select,
    seed: int,
  ):
    self._sums = _counter(
      *(model, views, split, _all_by_class), select=select, seed=seed
    )
    self._names = tuple(map(str, class_names))
    self.log: csv_files.RoundTable | None = None

  def __call__(self, finished: FinishedRound) -> Mapping[str, object]:
    """Writes the rows of a round that is tested.

    Returns the number of classes that some pseudo-label names.
    """
    if not finished.is_evaluated:
      return {}
    examples, labelled, right, named = self._sums(finished)
    self.log.append(
      finished.number,
      zip(
        range(len(self._names)),
        self._names,
        examples.astype(np.int64),
        labelled,
        right,
        named,
        strict=True,
      ),
    )
    return {'pseudo_label_classes': int((named > 0).sum())}
