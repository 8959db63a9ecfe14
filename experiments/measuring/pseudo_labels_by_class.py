"""Counts which pseudo-labels each class gets, on a sample of the clients.

The labels that the simulation hides say what is right. Nothing that trains sees
them.
"""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from datasets.sources import source
from experiments.artifacts import rows_of_rounds
from experiments.config.usage import UsageError
from experiments.measuring import pseudo_label_counts
from experiments.measuring.finished_round import FinishedRound
from tff_ssl.common.randomness import Purpose, generator

# Of metrics.csv: the number of classes that some pseudo-label names.
_CLASSES = 'pseudo_label_classes'


def draw(data, number: int, seed: int) -> source.Split:
  """Draws unlabelled examples of the clients whose label is known.

  Args:
    data: The run's `RunData`.
    number: How many; all there are, if fewer.
    seed: The run's seed.

  Returns:
    The examples with their true labels, in random order.

  Raises:
    UsageError: If there is none.
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
    self._names = tuple(map(str, class_names))
    self._log: rows_of_rounds.PseudoLabelLog | None = None

    def count(labels, guesses, weights, num_classes):
      right = pseudo_label_counts.right(labels, guesses, weights)
      return [
        pseudo_label_counts.by_class(classes, counted, num_classes)
        for classes, counted in (
          (labels, tf.ones_like(weights)),
          (labels, weights),
          (labels, right),
          (guesses, weights),
        )
      ]

    self._counts = pseudo_label_counts.PseudoLabelCounts(
      model, views, split, select=select, seed=seed, count=count
    )

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
    examples, labelled, right, named = self._counts(finished)
    self._log.append(
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
    return {_CLASSES: int((named > 0).sum())}


@contextlib.contextmanager
def opened(
  counts: PseudoLabelsByClass | None, path: pathlib.Path, first_round: int, log
) -> Iterator[None]:
  """Opens pseudo_labels.csv for a run that goes on with `first_round`.

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
  with rows_of_rounds.opened(
    rows_of_rounds.PseudoLabelLog,
    path,
    first_round,
    log=log,
    column=_CLASSES,
    is_wanted=counts is not None,
  ) as table:
    if table is not None:
      counts.write_to(table)
    yield
