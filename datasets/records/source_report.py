"""What a data set looks like before anything is trained, and what is odd in it.

For data that nobody has looked at: `python -m experiments.check_data`.
"""

import collections
from collections.abc import Iterator

import numpy as np

from datasets.sources.source import UNKNOWN, Source, Split

# Below this many labels of a class, a result is chance.
_FEW_LABELS = 5
# From this ratio of the largest class to the smallest, accuracy says little.
_SKEW = 10
_MOST_NAMED = 5


def facts(source: Source) -> list[str]:
  """Returns what was understood: form, splits, classes, clients.

  Args:
    source: The data.
  """
  shape = ' x '.join(map(str, source.train.images.shape[1:]))
  lines = [
    f'{source.title}.',
    f'Examples are {source.form} of {shape}.',
  ]
  for name, split in _splits(source).items():
    known = split.labels[split.labels != UNKNOWN]
    counts = np.bincount(known, minlength=source.num_classes)
    classes = ', '.join(
      f'{name}: {count:,}'
      for name, count in zip(source.class_names, counts, strict=True)
    )
    lines.append(
      f'{name} has {len(split.labels):,} examples; labels: {classes}.'
    )
    if len(known) < len(split.labels):
      lines[-1] = (
        f'{lines[-1][:-1]}; {len(split.labels) - len(known):,} without a label.'
      )
  owners = source.of_clients.train.client_ids
  if source.sets is not None:
    lines.append(
      f'{len(source.sets.client_names)} clients with up to '
      f'{source.sets.class_priors.shape[1]} sets each.'
    )
  elif owners is None:
    lines.append('Nobody owns examples: --partition deals them to clients.')
  else:
    sizes = np.unique(owners, return_counts=True)[1]
    lines.append(
      f'{len(sizes):,} clients own {sizes.min():,}/{np.median(sizes):,g}/'
      f'{sizes.max():,} examples (min/median/max).'
    )
  return lines


def oddities(source: Source) -> list[str]:
  """Returns what a person should look at, one sentence each.

  Duplicates are found by the bytes of examples.

  Args:
    source: The data.
  """
  return [
    *source.notes,
    *_few_labels(source),
    *_skew(source),
    *_duplicates(source),
    *_flat_examples(source),
    *_owners(source),
  ]


def _splits(source: Source) -> dict[str, Split]:
  splits = {
    'train': source.of_clients.train,
    'server': source.server,
    'validation': source.validation,
    'test': source.test,
  }
  return {name: split for name, split in splits.items() if split is not None}


def _few_labels(source: Source) -> Iterator[str]:
  if source.sets is not None:
    return
  known = source.train.labels[source.train.labels != UNKNOWN]
  counts = np.bincount(known, minlength=source.num_classes)
  few = [
    f'{source.class_names[c]} ({counts[c]})'
    for c in np.flatnonzero(counts < _FEW_LABELS)
  ]
  if few:
    yield (
      f'Fewer than {_FEW_LABELS} training labels: {_some(few)}. Label more '
      'before you tune anything.'
    )


def _skew(source: Source) -> Iterator[str]:
  for name, split in _splits(source).items():
    counts = np.bincount(
      split.labels[split.labels != UNKNOWN], minlength=source.num_classes
    )
    low, high = counts.argmin(), counts.argmax()
    if counts[low] and counts[high] >= _SKEW * counts[low]:
      yield (
        f'{name}: the class {source.class_names[high]} is '
        f'{counts[high] / counts[low]:.0f} times as frequent as '
        f'{source.class_names[low]}. Compare by balanced_accuracy or macro_f1 '
        'of summary.json, not by accuracy.'
      )


def _duplicates(source: Source) -> Iterator[str]:
  """Looks for equal examples within and between splits."""
  splits = _splits(source)
  keys = {
    name: [x.tobytes() for x in split.images] for name, split in splits.items()
  }
  train = set(keys['train'])
  for name in splits:
    if name in ('train', 'server'):
      continue
    both = sum(key in train for key in keys[name])
    if both:
      yield (
        f'{both:,} of the {len(keys[name]):,} {name} examples are in train, '
        f'too: accuracy on them says nothing. Remove them from {name}, or from '
        'train.'
      )
  again = len(keys['train']) - len(train)
  if again:
    yield f'{again:,} training examples occur more than once.'
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


def _flat_examples(source: Source) -> Iterator[str]:
  """Looks for images of one colour, and features that never change."""
  train = source.train.images
  if source.form == 'tokens':
    empty = int((train == 0).all(axis=1).sum())
    if empty:
      yield f'{empty:,} training texts have no word.'
    return
  if source.form == 'vectors':
    flat = int((train == train[:1]).all(axis=0).sum())
    if flat:
      yield (
        f'{flat} of {train.shape[1]} features have one single value in train: '
        'leave their columns out.'
      )
    return
  flat_images = train.reshape(len(train), -1)
  flat = int((flat_images == flat_images[:, :1]).all(axis=1).sum())
  if flat:
    yield (
      f'{flat:,} training images have one single value in all pixels: empty '
      'or damaged pictures?'
    )


def _owners(source: Source) -> Iterator[str]:
  train = source.of_clients.train
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


def _some(names: list[str]) -> str:
  more = len(names) - _MOST_NAMED
  listed = ', '.join(names[:_MOST_NAMED])
  return f'{listed} and {more} more' if more > 0 else listed
