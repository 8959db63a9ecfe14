"""Validation from the end of the training split (FedUL, Appendix D).

"We split 20% original data for validation and model selection": its authors'
code takes the last fifth of the training examples. It tests clients on equally
many examples of each class (Section 4: "the test data are uniformly sampled
from all classes").
"""

import dataclasses

import numpy as np

from datasets.draws import assignment
from datasets.sources.source import UNKNOWN, Source, Split

HELD_OUT = '80_20'
HELD_OUT_UNIFORM = '80_20_uniform'
_SHARE = 5  # One in so many examples.


def hold_out(source: Source) -> Source:
  """Makes the last fifth of the training examples the validation split.

  Mean, standard deviation and background stay as they are, those of the
  source's own training split. The result does not name owners.

  Args:
    source: The source, without a validation split of its own.

  Returns:
    The source with a shorter training split, and a version and title that say
    so.

  Raises:
    ValueError: If there is a validation split, some images have no label, there
      are too few examples, or a class is left without training examples.
  """
  if source.validation is not None:
    raise ValueError(
      f'split={HELD_OUT!r}: {source.name} has a validation split of its own: '
      "choose split='own'."
    )
  labels = source.train.labels
  if (labels == UNKNOWN).any():
    raise ValueError(
      f'split={HELD_OUT!r} would validate on images without labels, which '
      f"{source.name} has: choose split='own'."
    )
  kept = len(labels) - len(labels) // _SHARE
  if kept == len(labels):
    raise ValueError(
      f'split={HELD_OUT!r} leaves no validation example of the {kept} of '
      f'{source.name}: give {_SHARE} or more.'
    )
  unseen = np.setdiff1d(labels, labels[:kept])
  if unseen.size:
    raise ValueError(
      f'split={HELD_OUT!r} leaves no training example of the classes '
      f'{unseen[:5].tolist()} of {source.name}, which is sorted by class: '
      "choose split='80_5_15'."
    )
  images = source.train.examples
  return dataclasses.replace(
    source,
    version=f'{source.version}-{HELD_OUT}',
    title=(
      f'{source.title}; the last {len(labels) - kept:,} training examples are '
      'for validation'
    ),
    train=Split(images[:kept], labels[:kept]),
    validation=Split(images[kept:], labels[kept:]),
  )


def with_uniform_test(source: Source, seed: int) -> Source:
  """Reduces the test examples of each class to the number of the rarest one.

  Args:
    source: The source; each class has test examples.
    seed: Fixes which examples remain; at least 0.

  Returns:
    The source with a smaller test split, and a version and title that say so.

  Raises:
    ValueError: If a class has no test example.
  """
  test = source.test
  counts = np.bincount(test.labels, minlength=source.num_classes)
  if not counts.min():
    raise ValueError(
      f'split={HELD_OUT_UNIFORM!r}: {source.name} has no test example of class '
      f'{np.argmin(counts)}: choose split={HELD_OUT!r}.'
    )
  chosen = np.sort(
    assignment.draw_class_uniform(
      test.labels,
      np.arange(len(test.labels)),
      np.full(source.num_classes, counts.min()),
      assignment.generator(seed, assignment.Purpose.SPLIT),
    )
  )
  return dataclasses.replace(
    source,
    version=f'{source.version}-uniform-seed{seed}',
    title=f'{source.title}; {counts.min():,} test examples of each class',
    test=Split(test.examples[chosen], test.labels[chosen]),
  )
