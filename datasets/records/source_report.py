"""What a data set looks like before training, and what is odd in it."""

import collections
import hashlib
import itertools
from collections.abc import Iterator

import numpy as np

from datasets.records import partition_report
from datasets.sources.own.rows import some
from datasets.sources.source import UNKNOWN, Source, Split

# Below this many labels of a class, a result is chance.
_FEW_LABELS = 5
# From this ratio of the largest class to the smallest, accuracy says little.
_SKEW = 10
# How many standard deviations of train another split's mean may be away, by how
# much its own may differ, and from how many examples on that is no chance.
_FAR, _WIDE, _ENOUGH = 3.0, 4.0, 10
# Images without any lighter pixel look divided, and those that span less have
# lost their contrast.
_DARK = 64
# By how much shares of grey images may differ between splits.
_GREY = 0.5
# Squared errors of priors: so many times what chance makes, and what those of
# another class have.
_CHANCE, _BETTER = 9, 4
# What the numbers of a shape count, where that is not plain.
_COUNTED = {'vectors': ' features', 'tokens': ' words at most'}


def facts(source: Source) -> list[str]:
  """Returns what was understood: form, columns, splits, classes, owners."""
  shape = ' x '.join(map(str, source.train.examples.shape[1:]))
  lines = [
    f'{source.title}.',
    f'Examples are {source.form} of {shape}{_COUNTED.get(source.form, "")}.',
    *source.facts,
  ]
  splits = source.splits
  for name, split in splits.items():
    counts = _counts(source, split)
    classes = ', '.join(
      f'{name}: {count:,}'
      for name, count in zip(source.class_names, counts, strict=True)
    )
    lines.append(
      f'{name} has {len(split.labels):,} examples; labels: {classes}.'
    )
    if unknown := len(split.labels) - counts.sum():
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


def oddities(source: Source) -> list[str]:
  """Returns what a person should look at, one sentence each, with a remedy."""
  return [
    *source.notes,
    *_few_labels(source),
    *_priors(source),
    *_classes(source),
    *_duplicates(source),
    *_scales(source),
    *_colours(source),
    *_flat_examples(source),
    *_owners(source),
  ]


def _counts(source: Source, split: Split) -> np.ndarray:
  """Returns how many labels of each class a split has."""
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


def _scales(source: Source) -> Iterator[str]:
  """Compares the other splits with train: values that lie elsewhere."""
  splits = source.splits
  train, remedy = splits.pop('train'), 'write all files in one way.'
  if source.form == 'tokens':
    for name, split in splits.items():
      words = split.examples != 0
      unknown = np.count_nonzero(split.examples == 1)
      if 2 * unknown > np.count_nonzero(words):
        yield (
          f'{unknown:,} of {np.count_nonzero(words):,} words in {name} do not '
          f'occur in train: {remedy}'
        )
    return
  if source.form == 'images' and train.examples.max() < _DARK:
    yield (
      f'No pixel of train is above {train.examples.max()}, where 255 is white: '
      'multiply the pixels of all files by one number.'
    )
  elif source.form == 'images' and np.ptp(train.examples) < _DARK:
    yield (
      f'Pixels of train are whole numbers from {train.examples.min()} to '
      f'{train.examples.max()} alone: spread those of all files over 0 to 255, '
      'or floats over 0 to 1.'
    )
  means, stddevs = _moments(train.examples)
  names = dict(enumerate((source.preprocessing or {}).get('numbers', ())))
  for name, split in splits.items():
    if len(split.labels) < _ENOUGH:
      continue
    own_means, own_stddevs = _moments(split.examples)
    spread = np.where(stddevs > 0, stddevs, np.inf)
    far = np.abs(own_means - means) > _FAR * spread
    with np.errstate(divide='ignore', invalid='ignore'):
      ratio = own_stddevs / stddevs
    far |= (ratio > _WIDE) | (ratio < 1 / _WIDE)
    far &= stddevs > 0
    if far.any():
      worst = int(np.flatnonzero(far)[0])
      what = (
        ('pixels (means of images)', 'pixels (contrasts of images)')[worst]
        if source.form == 'images'
        else f'features, such as {names.get(worst, f"number {worst + 1}")},'
      )
      yield (
        f'{name} has {what} of another scale than train: mean '
        f'{own_means[worst]:.4g} and spread {own_stddevs[worst]:.4g}, where '
        f'train has {means[worst]:.4g} and {stddevs[worst]:.4g}: {remedy}'
      )


def _colours(source: Source) -> Iterator[str]:
  """Compares the other splits with train: grey images, and coloured ones."""
  if source.form != 'images' or source.train.examples.shape[3] == 1:
    return
  shares = {
    name: np.mean([(x == x[..., :1]).all() for x in split.examples])
    for name, split in source.splits.items()
  }
  for name, share in shares.items():
    if abs(share - shares['train']) > _GREY:
      yield (
        f'{share:.0%} of the {name} images are grey, and {shares["train"]:.0%} '
        'of train: give all splits images of one kind.'
      )


def _moments(examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns mean and deviation of features, or of images' mean and contrast."""
  if examples.ndim == 2:
    # Words are 0 and 1, and may be rare.
    is_word = np.isin(examples, (0, 1)).all(axis=0)
    values = examples.astype(np.float64)
    return values.mean(axis=0), np.where(is_word, 0, values.std(axis=0))
  pixels = examples.reshape(len(examples), -1)
  means = pixels.mean(axis=1)
  # Not `std`, which takes eight bytes a pixel.
  squares = np.einsum('ij,ij->i', pixels, pixels, dtype=np.float64)
  spreads = np.sqrt(np.maximum(squares / pixels.shape[1] - means**2, 0))
  values = np.stack([means, spreads], axis=1)
  return values.mean(axis=0), values.std(axis=0)


def _flat_examples(source: Source) -> Iterator[str]:
  """Looks for images of one colour, and features that never change."""
  train = source.train.examples
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
