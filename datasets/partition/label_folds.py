"""Folds of the labelled examples: validation that costs no further label.

Whoever has few labels has none to spare for a validation set. In K runs, each
K-th of the labelled examples is left out of training once, and the model is
measured on it. So a value can be chosen by all labels that training has, and by
no other (cross-validation: Stone, "Cross-Validatory Choice and Assessment of
Statistical Predictions", 1974). The labels that a simulation hides play no
part, and neither does the test split.

An example that is left out is at nobody in that run, not even without label.
"""

import dataclasses
import re

import numpy as np

from datasets.partition import assignment
from datasets.partition.assignment import Partition
from datasets.sources.source import Source
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting

_FORM = re.compile('([1-9][0-9]*)of([1-9][0-9]*)')


def parse(text: str) -> tuple[int, int]:
  """Returns the number of a fold, from 0, and how many there are."""
  found = _FORM.fullmatch(text)
  number, folds = map(int, found.groups()) if found else (0, 0)
  if not 1 <= number <= folds or folds < 2:
    raise ValueError(
      'must be a fold and how many there are, two at least, such as 1of5.'
    )
  return number - 1, folds


def text(number: int, folds: int) -> str:
  """Returns the value of the setting for a fold, counted from 0."""
  return f'{number + 1}of{folds}'


FOLD = Setting(
  'label_fold',
  str,
  'Which share of the labelled examples is for validation and trains nothing, '
  'such as 1of5, the first fifth, drawn by class and by the seed; '
  '`experiments.tune --folds=5` runs all five.',
  parse=parse,
  optional=True,
  needed_by='choices where all labels are for training',
)


def hold_out(
  source: Source, partition: Partition, known: np.ndarray, fold: str
) -> tuple[Source, Partition]:
  """Makes a fold of the labelled examples the validation split.

  Args:
    known: `int64 [L]`, the labelled examples that training sees, as numbers of
      `source.training`.
    fold: A value of `FOLD`.

  Returns:
    The source with a validation split, and the partition without its examples.
    The folds of one seed have no example in common, and hold all of `known`;
    the classes are in each as even as their numbers allow.

  Raises:
    ValueError: If there is a validation split, examples lie in sets or belong
      to several, or a class would have no label left.
  """
  number, folds = parse(fold)
  given = f'{FOLD.name}={fold}'
  if source.validation is not None:
    raise ValueError(
      f'{given}: {source.name} has a validation split already: leave it out.'
    )
  if partition.in_sets or partition.is_shared or not len(known):
    raise ValueError(
      f'{given} needs labelled examples that belong to the server or to one '
      'client each: leave it out.'
    )
  rng = generator(Purpose.LABEL_FOLDS, partition.seed)
  known = rng.permutation(np.sort(known))
  labels = source.training.labels[known]
  held = known[assignment.turns(labels) % folds == number]
  left = np.setdiff1d(labels, labels[~np.isin(known, held)])
  if left.size or not held.size:
    what = f'holds none of the {len(known)} labels'
    if left.size:
      name = source.class_names[left[0]]
      what = f'leaves no label of the class {name!r} for training'
    raise ValueError(
      f'{given} {what}: give as many labels of each class as there are folds, '
      'two at least, or take the default of what you choose.'
    )
  validation = source.training.part(np.sort(held))
  return (
    dataclasses.replace(source, validation=validation),
    _without(partition, held, fold),
  )


def _without(partition, held, fold) -> Partition:
  keeps = ~np.isin(partition.examples, held)
  sizes = np.bincount(partition.owners[keeps], minlength=partition.num_clients)
  server, labelled = (
    indices[~np.isin(indices, held)]
    for indices in (partition.server_indices, partition.labelled_indices)
  )
  return dataclasses.replace(
    partition,
    server_indices=server,
    examples=partition.examples[keeps],
    offsets=np.cumsum([0, *sizes]),
    labelled_indices=labelled,
    arguments={**partition.arguments, FOLD.name: fold},
  )
