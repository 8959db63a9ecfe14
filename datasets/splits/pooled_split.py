"""Train, validation and test cut anew from all examples of a source.

The split of FedLabel (Cho et al., "Local or Global: Selective Knowledge
Assimilation for Federated Learning with Limited Labels", Appendix A): 80% of
the data are for training, 5% for validation and 15% for the test. The paper
does not say how they were drawn; here it is plainly at random.
"""

import dataclasses

import numpy as np

from datasets.draws import assignment
from datasets.sources.source import UNKNOWN, Source, Split

OWN = 'own'
CUT = '80_5_15'
# Validation and test are these shares of the examples, rounded down; the rest
# is for training.
_VALIDATION, _TEST = (1, 20), (3, 20)


def cut(source: Source, seed: int) -> Source:
  """Pools the splits of a source and cuts them anew, 80% / 5% / 15%.

  Mean, standard deviation and background stay as they are, those of the
  source's own training split. The result does not name owners, whose examples
  are spread over the three splits.

  Args:
    source: The source; its validation split, if any, is pooled too.
    seed: Fixes the cut; at least 0.

  Returns:
    The source with new splits, and a version and title that say so. The title
    is the same for all seeds: runs that differ by seed are one row of a report.

  Raises:
    ValueError: If some images have no label, there are too few examples, or a
      class is left without training examples.
  """
  pool = [
    split
    for split in (source.train, source.validation, source.test)
    if split is not None
  ]
  labels = np.concatenate([split.labels for split in pool])
  if (labels == UNKNOWN).any():
    raise ValueError(
      f'split={CUT!r} would test on images without labels, which '
      f'{source.name} has: choose split={OWN!r}.'
    )
  n = len(labels)
  num_validation, num_test = (
    n * part // whole for part, whole in (_VALIDATION, _TEST)
  )
  if not num_validation:
    raise ValueError(
      f'split={CUT!r} leaves no validation example of the {n} of '
      f'{source.name}: give {_VALIDATION[1]} or more.'
    )
  order = assignment.generator(seed, assignment.Purpose.SPLIT).permutation(n)
  validation, test, train = (
    _take(pool, np.sort(indices))
    for indices in np.split(order, [num_validation, num_validation + num_test])
  )
  unseen = np.setdiff1d(labels, train.labels)
  if unseen.size:
    raise ValueError(
      f'split={CUT!r} with seed={seed} leaves no training example of the '
      f'classes {unseen[:5].tolist()} of {source.name}: choose another seed '
      f'or split={OWN!r}.'
    )
  return dataclasses.replace(
    source,
    version=f'{source.version}-{CUT}-seed{seed}',
    title=(
      f'{source.title}; cut anew by the seed: {len(train.labels):,} '
      f'train, {num_validation:,} validation and {num_test:,} test'
    ),
    train=train,
    test=test,
    validation=validation,
  )


def _take(pool: list[Split], indices: np.ndarray) -> Split:
  """Returns the examples of ascending indices into the pool.

  It works split by split, so that memory never holds a copy of the pool.
  """
  ends = np.cumsum([len(split.labels) for split in pool])
  parts = np.split(indices, np.searchsorted(indices, ends[:-1]))
  starts = ends - [len(split.labels) for split in pool]
  images = np.concatenate(
    [
      split.examples[part - start]
      for split, part, start in zip(pool, parts, starts, strict=True)
    ]
  )
  labels = np.concatenate(
    [
      split.labels[part - start]
      for split, part, start in zip(pool, parts, starts, strict=True)
    ]
  )
  return Split(images, labels)
