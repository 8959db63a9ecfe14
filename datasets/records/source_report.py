"""What a data set looks like before training, and what is odd in it."""

import collections
import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from datasets.records import partition_report
from datasets.sources.forms import FORMS
from datasets.sources.own.rows import some
from datasets.sources.source import UNKNOWN, Source, Split

# Below this many labels of a class, a result is chance.
_FEW_LABELS = 5
# From this ratio of the largest class to the smallest, accuracy says little.
_SKEW = 10
# Squared errors of priors: so many times what chance makes, and what those of
# another class have.
_CHANCE, _BETTER = 9, 4


def facts(source: Source) -> list[str]:
  """Returns what was understood: form, columns, splits, classes, owners."""
  shape = ' x '.join(map(str, source.train.examples.shape[1:]))
  lines = [
    f'{source.title}.',
    f'Examples are {source.form} of {shape}{FORMS[source.form].counted}.',
    *source.facts,
  ]
  splits = source.splits
  for name, sizes in sizes_of_splits(source).items():
    classes = ', '.join(f'{k}: {n:,}' for k, n in sizes['labels'].items())
    lines.append(
      f'{name} has {sizes["examples"]:,} examples; labels: {classes}.'
    )
    if unknown := sizes['unlabelled']:
      lines[-1] = f'{lines[-1][:-1]}; {unknown:,} without a label.'
  train = splits['train']
  if source.sets is not None:
    lines.append(
      f'{len(source.sets.client_names)} clients with up to '
      f'{source.sets.class_priors.shape[1]} sets each.'
    )
  elif train.client_ids is None:
    lines.append('Nobody owns examples: --partition deals them to clients.')
  else:
    names, index = np.unique(train.client_ids, return_inverse=True)
    labelled = np.bincount(index[train.labels != UNKNOWN], minlength=len(names))
    lines.append(
      f'{len(names):,} clients own {_ends(np.bincount(index))} examples '
      f'(min/median/max), {_ends(labelled)} of them labelled.'
    )
    for name, split in splits.items():
      if name not in ('train', 'server') and split.client_ids is not None:
        others = set(split.client_ids)
        both = len(others & set(names))
        lines.append(
          f'{both:,} of the {len(others):,} owners in {name} are in train, too.'
        )
  return lines


def sizes_of_splits(source: Source) -> dict[str, dict[str, Any]]:
  """Returns the numbers of examples, with a label or without, of each split."""
  found = {}
  for name, split in source.splits.items():
    counts = _counts(source, split)
    found[name] = {
      'examples': len(split.labels),
      'labels': dict(zip(source.class_names, counts.tolist(), strict=True)),
      'unlabelled': len(split.labels) - int(counts.sum()),
    }
  return found


def oddities(source: Source) -> list[str]:
  """Returns what a person should look at, one sentence each, with a remedy."""
  return [
    *source.notes,
    *_few_labels(source),
    *_priors(source),
    *_classes(source),
    *_duplicates(source),
    *FORMS[source.form].oddities(source),
    *_owners(source),
  ]


def _counts(source: Source, split: Split) -> np.ndarray:
  known = split.labels[split.labels != UNKNOWN]
  return np.bincount(known, minlength=source.num_classes)


def _ends(sizes: np.ndarray) -> str:
  return f'{sizes.min():,}/{np.median(sizes):,g}/{sizes.max():,}'


def _few_labels(source: Source) -> Iterator[str]:
  if source.sets is not None:
    return
  last = None
  for name in ('training', 'server'):
    split = getattr(source, name)
    if split is None or np.array_equal(last, _counts(source, split)):
      continue  # Clients have no labels.
    last = _counts(source, split)
    few = [
      f'{source.class_names[c]} ({last[c]})'
      for c in np.flatnonzero(last < _FEW_LABELS)
    ]
    if few:
      yield (
        f'Fewer than {_FEW_LABELS} {name} labels: {some(few)}. Label more '
        'before you tune anything.'
      )


def _classes(source: Source) -> Iterator[str]:
  for name, split in source.splits.items():
    counts, names = _counts(source, split), source.class_names
    low, high = counts.argmin(), counts.argmax()
    if counts[low] and counts[high] >= _SKEW * counts[low]:
      yield (
        f'{name}: the class {names[high]} is {counts[high] / counts[low]:.0f} '
        f'times as frequent as {names[low]}. Compare by balanced_accuracy or '
        'macro_f1 of summary.json, not by accuracy.'
      )
    if name in ('validation', 'test') and not counts[low]:
      lacking = [names[c] for c in np.flatnonzero(counts == 0)]
      yield (
        f'{name} has no example of {some(lacking)}: its figures say nothing of '
        'that (macro-F1 is the mean over the classes there).'
      )


def _priors(source: Source) -> Iterator[str]:
  """Looks for classes with labels as frequent as the priors of another say."""
  if (sets := source.sets) is None:
    return
  priors = sets.class_priors.reshape(-1, source.num_classes)
  places = np.ravel_multi_index(
    (sets.client_index, sets.set_index), sets.class_priors.shape[:2]
  )
  counts = partition_report.class_counts(
    source.train.labels, places, len(priors), source.num_classes
  )
  sizes = counts.sum(axis=1, keepdims=True)
  counts, priors = counts[sizes[:, 0] > 0], priors[sizes[:, 0] > 0]
  sizes = sizes[sizes > 0]
  for label, name in enumerate(source.class_names):
    errors = (counts[:, label] / sizes - priors.T) ** 2 @ sizes
    other = int(errors.argmin())
    chance = (priors[:, label] * (1 - priors[:, label])).sum()
    if errors[label] > max(_CHANCE * chance, _BETTER * errors[other]):
      yield (
        f'Labels {name} of train are as frequent in sets as the priors say of '
        f'{source.class_names[other]}: are columns of the priors swapped?'
      )


def _duplicates(source: Source) -> Iterator[str]:
  """Looks for equal examples within and between splits."""
  splits = source.splits
  keys = {
    # Of their bytes, which would take as much memory again.
    name: [hashlib.sha256(x.data).digest() for x in split.examples]
    for name, split in splits.items()
  }
  distinct = {name: set(own) for name, own in keys.items()}
  for first, second in itertools.combinations(splits, 2):
    both = sum(key in distinct[first] for key in keys[second])
    if both:
      yield (
        f'{both:,} of the {len(keys[second]):,} {second} examples are in '
        f'{first}, too'
        + (
          f': remove them from {second}.'
          if second == 'server'
          else ', a leak: accuracy on them says nothing. Remove them from '
          f'{second}, or from {first}.'
        )
      )
  again = len(keys['train']) - len(distinct['train'])
  if again:
    yield f'{again:,} training examples occur more than once: remove them.'
  labels = collections.defaultdict(set)
  for key, label in zip(keys['train'], splits['train'].labels, strict=True):
    if label != UNKNOWN:
      labels[key].add(int(label))
  contradictory = sum(len(found) > 1 for found in labels.values())
  if contradictory:
    yield (
      f'{contradictory:,} training examples occur with different labels: '
      'correct them.'
    )


def _owners(source: Source) -> Iterator[str]:
  train = source.train
  owners = train.client_ids
  if owners is None:
    return
  names, index, sizes = np.unique(
    owners, return_inverse=True, return_counts=True
  )
  if len(names) == 1:
    yield (
      'All training examples belong to one client: a federation has several.'
    )
    return
  if sizes.max() > len(owners) / 2:
    yield (
      f'The client {names[sizes.argmax()]!r} owns {sizes.max():,} of '
      f'{len(owners):,} training examples: means over clients are about it.'
    )
  known = train.labels != UNKNOWN
  classes = np.zeros([len(names), source.num_classes], bool)
  classes[index[known], train.labels[known]] = True
  single = int((classes.sum(axis=1) == 1).sum())
  if single:
    yield (
      f'{single:,} of {len(names):,} clients have labels of one class alone: '
      'clients differ much.'
    )
