"""Validation from the training examples of each client.

For data that name the owner of each example, such as the writers of federated
EMNIST: training and validation then have the same clients.
"""

import dataclasses

import numpy as np

from datasets.draws import assignment
from datasets.sources.source import UNKNOWN, Source

PER_CLIENT = '90_10_per_client'
_SHARE = 10  # One in so many examples.


def hold_out_per_client(source: Source, seed: int) -> Source:
  """Makes a tenth of each owner's training examples the validation split.

  The tenth is rounded down and drawn from the examples that have labels. An
  owner with fewer than ten keeps them all. Mean, standard deviation and
  background stay as they are, those of the source's own training split.

  Args:
    source: The source, which names owners and has no validation split of its
      own.
    seed: Fixes the draw; at least 0.

  Returns:
    The source with a shorter training split, and a version and title that say
    so. Owners stay named. The title is the same for all seeds: runs that differ
    by seed are one row of a report.

  Raises:
    ValueError: If there is a validation split, nobody owns the examples, no
      owner has ten labels, or a class is left without training examples.
  """
  train = source.train
  if source.validation is not None:
    raise ValueError(
      f'split={PER_CLIENT!r}: {source.name} has a validation split of its own: '
      "choose split='own'."
    )
  if train.client_ids is None:
    raise ValueError(
      f'split={PER_CLIENT!r} needs the owner of each example, but '
      f"{source.name} names no owners: choose split='80_5_15' or 'own'."
    )
  order = assignment.generator(seed, assignment.Purpose.SPLIT).permutation(
    np.flatnonzero(train.labels != UNKNOWN)
  )
  owners = np.unique(train.client_ids[order], return_inverse=True)[1]
  quotas = np.bincount(owners) // _SHARE
  held = np.zeros(len(train.labels), bool)
  held[order[assignment.turns(owners) < quotas[owners]]] = True
  if not held.any():
    raise ValueError(
      f'split={PER_CLIENT!r} leaves no validation example of {source.name}, '
      f"none of whose owners has {_SHARE} labels: choose split='own'."
    )
  unseen = np.setdiff1d(train.labels, train.labels[~held])
  if unseen.size:
    raise ValueError(
      f'split={PER_CLIENT!r} with seed={seed} leaves no training example of '
      f'the classes {unseen[:5].tolist()} of {source.name}: choose another '
      "seed or split='own'."
    )
  return dataclasses.replace(
    source,
    version=f'{source.version}-{PER_CLIENT}-seed{seed}',
    title=(
      f'{source.title}; {held.sum():,} of the training examples, a tenth of '
      'those of each client, are for validation'
    ),
    train=train.part(~held),
    validation=train.part(held),
  )
