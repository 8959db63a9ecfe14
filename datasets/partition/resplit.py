"""The ways to divide a source into training, validation and test split.

`80_5_15` is the split of FedLabel (Cho et al., "Local or Global: Selective
Knowledge Assimilation for Federated Learning with Limited Labels", Appendix A),
which does not say how it was drawn: here, plainly at random. `80_20` is that of
FedUL (Appendix D), whose code takes the last fifth of the training examples,
and tests clients on equally many examples of each class (Section 4), as
`80_20_uniform` does.

Mean, standard deviation and background stay. The title is the same for all
seeds: runs that differ by seed are one row of a report.
"""

import dataclasses

import numpy as np

from datasets.partition import assignment
from datasets.sources.source import UNKNOWN, Source, Split
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting

OWN = 'own'
CUT = '80_5_15'
HELD_OUT = '80_20'
HELD_OUT_UNIFORM = '80_20_uniform'
PER_CLIENT = '90_10_per_client'
# Of `CUT`, these shares of the examples, rounded down; the rest is for
# training.
_VALIDATION, _TEST = (1, 20), (3, 20)
# One in so many examples.
_HELD_OUT_SHARE, _PER_CLIENT_SHARE = 5, 10

SPLIT = Setting(
  'split',
  str,
  "Train and test: the data set's own, 80_5_15 (all examples pooled and cut "
  'anew by the seed, 80% train, 5% validation, 15% test), 80_20 (the last '
  'fifth of train is for validation), 80_20_uniform (and as many test examples '
  'of each class), or 90_10_per_client (a tenth of the training examples of '
  'each client is for validation; for data that name their clients).',
  choices=(OWN, CUT, HELD_OUT, HELD_OUT_UNIFORM, PER_CLIENT),
  optional=True,
  if_none=OWN,
  needed_by="choices by validation on a user's own data",
)


def resplit(source: Source, split: str | None, seed: int) -> Source:
  """Returns a source with the splits of `SPLIT`; `None` is the source's own."""
  SPLIT.check(split)
  if split in (OWN, None):
    return source
  if source.server:
    raise ValueError(
      f'split={split!r} does not fit {source.name}, whose files say which '
      f"examples are the server's: choose split={OWN!r}."
    )
  if split == CUT:
    return cut(source, seed)
  if split == PER_CLIENT:
    return hold_out_per_client(source, seed)
  source = hold_out(source)
  return (
    with_uniform_test(source, seed) if split == HELD_OUT_UNIFORM else source
  )


def cut(source: Source, seed: int) -> Source:
  """Pools the splits of a source and cuts them anew; owners get lost."""
  pool = list(source.splits.values())
  labels = np.concatenate([split.labels for split in pool])
  _check_labelled(source, labels, f'split={CUT!r} would test')
  n = len(labels)
  num_validation, num_test = (
    n * part // whole for part, whole in (_VALIDATION, _TEST)
  )
  if not num_validation:
    raise ValueError(
      f'split={CUT!r} leaves no validation example of the {n} of '
      f'{source.name}: give {_VALIDATION[1]} or more.'
    )
  order = generator(Purpose.SPLIT, seed).permutation(n)
  validation, test, train = (
    _take(pool, np.sort(indices))
    for indices in np.split(order, [num_validation, num_validation + num_test])
  )
  _check_all_classes(
    f'split={CUT!r} with seed={seed}',
    *(labels, train.labels),
    f'{source.name}: choose another seed or split={OWN!r}',
  )
  return changed(
    source,
    f'{CUT}-seed{seed}',
    f'cut anew by the seed: {len(train.labels):,} train, {num_validation:,} '
    f'validation and {num_test:,} test',
    train=train,
    test=test,
    validation=validation,
  )


def changed(source: Source, version: str, note: str, **fields) -> Source:
  """Returns a source with other fields, which its version and title say."""
  return dataclasses.replace(
    source,
    version=f'{source.version}-{version}',
    title=f'{source.title}; {note}',
    **fields,
  )


def _take(pool: list[Split], indices: np.ndarray) -> Split:
  """Returns the examples of ascending indices into the pool.

  Split by split, so that memory never holds a copy of the pool.
  """
  ends = np.cumsum([len(split.labels) for split in pool])
  parts = np.split(indices, np.searchsorted(indices, ends[:-1]))
  starts = ends - [len(split.labels) for split in pool]
  taken = [
    split.part(part - start)
    for split, part, start in zip(pool, parts, starts, strict=True)
  ]
  return Split(
    np.concatenate([own.examples for own in taken]),
    np.concatenate([own.labels for own in taken]),
  )


def hold_out(source: Source) -> Source:
  """Makes the last fifth of train the validation split; owners get lost."""
  _check_no_validation(source, HELD_OUT)
  labels = source.train.labels
  _check_labelled(source, labels, f'split={HELD_OUT!r} would validate')
  kept = len(labels) - len(labels) // _HELD_OUT_SHARE
  if kept == len(labels):
    raise ValueError(
      f'split={HELD_OUT!r} leaves no validation example of the {kept} of '
      f'{source.name}: give {_HELD_OUT_SHARE} or more.'
    )
  _check_all_classes(
    f'split={HELD_OUT!r}',
    *(labels, labels[:kept]),
    f'{source.name}, which is sorted by class: choose split={CUT!r}',
  )
  images = source.train.examples
  return changed(
    source,
    HELD_OUT,
    f'the last {len(labels) - kept:,} training examples are for validation',
    train=Split(images[:kept], labels[:kept]),
    validation=Split(images[kept:], labels[kept:]),
  )


def with_uniform_test(source: Source, seed: int) -> Source:
  """Reduces the test examples of each class to the number of the rarest one."""
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
      generator(Purpose.SPLIT, seed),
    )
  )
  return changed(
    source,
    f'uniform-seed{seed}',
    f'{counts.min():,} test examples of each class',
    test=Split(test.examples[chosen], test.labels[chosen]),
  )


def hold_out_per_client(source: Source, seed: int) -> Source:
  """Makes a tenth of each owner's labelled examples the validation split."""
  train = source.train
  _check_no_validation(source, PER_CLIENT)
  if train.client_ids is None:
    raise ValueError(
      f'split={PER_CLIENT!r} needs the owner of each example, but '
      f'{source.name} names no owners: choose split={CUT!r} or {OWN!r}.'
    )
  order = generator(Purpose.SPLIT, seed).permutation(
    np.flatnonzero(train.labels != UNKNOWN)
  )
  owners = np.unique(train.client_ids[order], return_inverse=True)[1]
  quotas = np.bincount(owners) // _PER_CLIENT_SHARE
  held = np.zeros(len(train.labels), bool)
  held[order[assignment.turns(owners) < quotas[owners]]] = True
  if not held.any():
    raise ValueError(
      f'split={PER_CLIENT!r} leaves no validation example of {source.name}, '
      f'none of whose owners has {_PER_CLIENT_SHARE} labels: choose '
      f'split={OWN!r}.'
    )
  _check_all_classes(
    f'split={PER_CLIENT!r} with seed={seed}',
    *(train.labels, train.labels[~held]),
    f'{source.name}: choose another seed or split={OWN!r}',
  )
  return changed(
    source,
    f'{PER_CLIENT}-seed{seed}',
    f'{held.sum():,} of the training examples, a tenth of those of each '
    'client, are for validation',
    train=train.part(~held),
    validation=train.part(held),
  )


def _check_no_validation(source: Source, split: str) -> None:
  if source.validation is not None:
    raise ValueError(
      f'split={split!r}: {source.name} has a validation split of its own: '
      f'choose split={OWN!r}.'
    )


def _check_labelled(source: Source, labels: np.ndarray, what: str) -> None:
  if (labels == UNKNOWN).any():
    raise ValueError(
      f'{what} on images without labels, which {source.name} has: choose '
      f'split={OWN!r}.'
    )


def _check_all_classes(what, labels, kept, of_which) -> None:
  unseen = np.setdiff1d(labels, kept)
  if unseen.size:
    raise ValueError(
      f'{what} leaves no training example of the classes '
      f'{unseen[:5].tolist()} of {of_which}.'
    )
