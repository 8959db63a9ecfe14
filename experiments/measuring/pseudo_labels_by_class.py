"""Measures which pseudo-labels each class gets, on a sample of the clients.

In rounds that are tested, the model labels unlabelled examples of the clients
in the weak view, by the rule of the run. The labels that the simulation hides
say what is right. Nothing that trains sees them.

The model is the one that is evaluated. The pseudo-labels of training may be
others: clients make them with their own models, FedLabel with two experts, in
the plain view.
"""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from datasets.draws import assignment
from datasets.records import split_manifest
from datasets.sources import source
from experiments.artifacts import rows_of_rounds
from experiments.config.usage import UsageError
from experiments.measuring import evaluation
from experiments.measuring.finished_round import FinishedRound
from tff_ssl import randomness

# Of metrics.csv: the number of classes that some pseudo-label names.
_CLASSES = 'pseudo_label_classes'


def draw(data, number: int, seed: int) -> source.Split:
  """Draws unlabelled examples of the clients whose label is known.

  Where labels are hidden anew in each pass, each example is unlabelled in some
  pass, and all are drawn from.

  Args:
    data: The run's `RunData`.
    number: How many; all there are, if fewer.
    seed: The run's seed.

  Returns:
    The examples with their true labels.

  Raises:
    UsageError: If there is none.
  """
  examples = np.unique(data.partition.examples)
  if data.redrawn_ratio is None:
    examples = np.setdiff1d(
      examples,
      split_manifest.known_to_clients(data.partition, data.labels_at),
    )
  train = data.source.train
  examples = examples[train.labels[examples] >= 0]
  if not len(examples):
    raise UsageError(
      f'--pseudo_label_examples={number} needs unlabelled examples of clients '
      'whose label the data hold, and there is none: give 0.'
    )
  rng = assignment.generator(seed, assignment.Purpose.MEASURED_EXAMPLES)
  drawn = np.sort(rng.permutation(examples)[:number])
  return source.Split(train.images[drawn], train.labels[drawn])


class PseudoLabelsByClass:
  """Counts pseudo-labels by class in the rounds that are tested."""

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
    """Prepares the measurement.

    Args:
      model: A `FunctionalModel`.
      views: Gives the weak view.
      split: From `draw`.
      class_names: The d names of the classes.
      select: From logits to pseudo-labels and their weights, as the clients do.
      seed: The run's seed.
    """
    self._batches = evaluation.batches(split)
    self._names = class_names
    self._seed = seed
    self._log: rows_of_rounds.PseudoLabelLog | None = None

    @tf.function(autograph=False)
    def count(trainable, non_trainable, images, labels, seed):
      logits, _ = model.predict(
        trainable, non_trainable, views.weak(images, seed), training=False
      )
      guesses, weights = select(logits)
      right = weights * tf.cast(tf.equal(guesses, labels), tf.float32)

      def by_class(classes, weights):
        return tf.math.bincount(
          classes, weights, minlength=len(class_names), dtype=tf.float32
        )

      return tf.stack(
        [
          by_class(labels, tf.ones_like(weights)),
          by_class(labels, weights),
          by_class(labels, right),
          by_class(guesses, weights),
        ]
      )

    self._count = count

  def write_to(self, log: rows_of_rounds.PseudoLabelLog) -> None:
    """Sets where the rows go.

    Args:
      log: Open as long as rounds are measured.
    """
    self._log = log

  def __call__(self, finished: FinishedRound) -> Mapping[str, object]:
    """Writes the rows of a round that is tested.

    Args:
      finished: The round.

    Returns:
      `pseudo_label_classes`, the number of classes that some pseudo-label
      names; nothing in a round that is not tested.

    Raises:
      MetricLogError: If the rows cannot be written.
    """
    if not finished.is_evaluated:
      return {}
    weights = finished.weights
    trainable = [tf.constant(value) for value in weights.trainable]
    non_trainable = [tf.constant(value) for value in weights.non_trainable]
    seed = randomness.fold_in(
      randomness.server_seed(
        tf.constant(self._seed), tf.constant(finished.number)
      ),
      randomness.Purpose.MEASURE,
    )
    counts = sum(
      self._count(
        trainable,
        non_trainable,
        images,
        labels,
        randomness.fold_in(seed, place),
      ).numpy()
      for place, (images, labels) in enumerate(self._batches)
    )
    examples, labelled, right, named = counts
    self._log.append(
      finished.number,
      zip(
        range(len(self._names)),
        map(str, self._names),
        examples.astype(np.int64),
        labelled,
        right,
        named,
        strict=True,
      ),
    )
    return {_CLASSES: int((named > 0).sum())}


@contextlib.contextmanager
def opened(
  counts: PseudoLabelsByClass | None, path: pathlib.Path, first_round: int, log
) -> Iterator[None]:
  """Opens pseudo_labels.csv for a run that goes on with `first_round`.

  An existing file is opened even where nothing is counted any more: opening it
  drops the rows of rounds that will be repeated.

  Args:
    counts: What writes the rows, if anything does.
    path: The CSV file.
    first_round: Number of the first round to come.
    log: `MetricLog` of the run, open.

  Yields:
    Nothing.

  Raises:
    MetricLogError: If the file lacks rows, or cannot be written.
  """
  if counts is None and not path.exists():
    yield
    return
  rounds = log.rounds_with(_CLASSES)
  with rows_of_rounds.PseudoLabelLog(path, first_round, rounds) as table:
    if counts is not None:
      counts.write_to(table)
    yield
