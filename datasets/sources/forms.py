"""The forms that examples have: what arrays of them are, and what is odd there.

A form that is added here is known to all that reads, checks and reports data.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

# How many standard deviations of train another split's mean may be away, by how
# much its own may differ, and from how many examples on that is no chance.
_FAR, _WIDE, _ENOUGH = 3.0, 4.0, 10
# Images without any lighter pixel look divided, and those that span less have
# lost their contrast.
_DARK = 64
# By how much shares of grey images may differ between splits.
_GREY = 0.5
_REMEDY = 'write all files in one way.'


@dataclasses.dataclass(frozen=True)
class Form:
  """What examples are.

  Attributes:
    dtype: The type of an array of N examples.
    axes: Its axes, the first one that of the examples, in words.
    oddities: Takes a `Source` and says what a person should look at in the
      values of its examples, one sentence each.
    faults: Takes a `Source` and the array of one of its splits, and says what
      is wrong with the values, such as '.examples holds NaN'.
    counted: What the numbers of a shape count, where that is not plain.
    defaults: What settings of a run have by default where a user's own data
      have this form, by name.
  """

  dtype: type
  axes: str
  oddities: Callable[[Any], Iterator[str]]
  faults: Callable[[Any, np.ndarray], Iterator[str]] = lambda *_: iter(())
  counted: str = ''
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def layout(self) -> str:
    """Type and axes, for people."""
    return f'{np.dtype(self.dtype)} [{self.axes}]'

  def fits(self, examples: np.ndarray) -> bool:
    """Returns whether an array has this type and as many axes."""
    rank = len(self.axes.split(','))
    return (examples.dtype, examples.ndim) == (self.dtype, rank)


def _finite(source, examples) -> Iterator[str]:
  del source
  if not np.isfinite(examples).all():
    yield '.examples holds NaN or an infinite number: replace it.'


def _known_words(source, examples) -> Iterator[str]:
  most = source.num_tokens or 0
  if not 0 <= examples.min() <= examples.max() < most:
    yield (
      f'.examples holds numbers of words outside [0, {most}): correct them, '
      'or num_tokens.'
    )


def _odd_images(source) -> Iterator[str]:
  train = source.train.examples
  if train.max() < _DARK:
    yield (
      f'No pixel of train is above {train.max()}, where 255 is white: '
      'multiply the pixels of all files by one number.'
    )
  elif np.ptp(train) < _DARK:
    yield (
      f'Pixels of train are whole numbers from {train.min()} to '
      f'{train.max()} alone: spread those of all files over 0 to 255, '
      'or floats over 0 to 1.'
    )
  names = ('pixels (means of images)', 'pixels (contrasts of images)')
  yield from _scales(source, _moments_of_images, names)
  yield from _colours(source)
  flat_images = train.reshape(len(train), -1)
  if flat := int((flat_images == flat_images[:, :1]).all(axis=1).sum()):
    yield (
      f'{flat:,} training images have one single value in all pixels: empty '
      'or damaged pictures?'
    )


def _odd_vectors(source) -> Iterator[str]:
  train = source.train.examples
  names = list((source.preprocessing or {}).get('numbers', ()))
  names += [f'number {i + 1}' for i in range(len(names), train.shape[1])]
  yield from _scales(
    *(source, _moments_of_vectors),
    [f'features, such as {name},' for name in names],
  )
  if flat := int((train == train[:1]).all(axis=0).sum()):
    yield (
      f'{flat} of {train.shape[1]} features have one single value in train: '
      'leave their columns out.'
    )


def _odd_tokens(source) -> Iterator[str]:
  for name, split in source.splits.items():
    words = np.count_nonzero(split.examples)
    unknown = np.count_nonzero(split.examples == 1)
    if name != 'train' and 2 * unknown > words:
      yield (
        f'{unknown:,} of {words:,} words in {name} do not '
        f'occur in train: {_REMEDY}'
      )
  if empty := int((source.train.examples == 0).all(axis=1).sum()):
    yield f'{empty:,} training texts have no word.'


def _scales(source, moments, names) -> Iterator[str]:
  """Compares the other splits with train: values that lie elsewhere.

  `moments` returns means and deviations of what `names` say.
  """
  means, stddevs = moments(source.train.examples)
  for name, split in source.splits.items():
    if name == 'train' or len(split.labels) < _ENOUGH:
      continue
    own_means, own_stddevs = moments(split.examples)
    spread = np.where(stddevs > 0, stddevs, np.inf)
    far = np.abs(own_means - means) > _FAR * spread
    with np.errstate(divide='ignore', invalid='ignore'):
      ratio = own_stddevs / stddevs
    far |= (ratio > _WIDE) | (ratio < 1 / _WIDE)
    far &= stddevs > 0
    if far.any():
      worst = int(np.flatnonzero(far)[0])
      yield (
        f'{name} has {names[worst]} of another scale than train: mean '
        f'{own_means[worst]:.4g} and spread {own_stddevs[worst]:.4g}, where '
        f'train has {means[worst]:.4g} and {stddevs[worst]:.4g}: {_REMEDY}'
      )


def _moments_of_vectors(examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns mean and deviation of each feature."""
  # Words are 0 and 1, and may be rare.
  is_word = np.isin(examples, (0, 1)).all(axis=0)
  values = examples.astype(np.float64)
  return values.mean(axis=0), np.where(is_word, 0, values.std(axis=0))


def _moments_of_images(examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns mean and deviation of images' means, and of their contrasts."""
  pixels = examples.reshape(len(examples), -1)
  means = pixels.mean(axis=1)
  # Not `std`, which takes eight bytes a pixel.
  squares = np.einsum('ij,ij->i', pixels, pixels, dtype=np.float64)
  spreads = np.sqrt(np.maximum(squares / pixels.shape[1] - means**2, 0))
  values = np.stack([means, spreads], axis=1)
  return values.mean(axis=0), values.std(axis=0)


def _colours(source) -> Iterator[str]:
  """Compares the other splits with train: grey images, and coloured ones."""
  if source.train.examples.shape[3] == 1:
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


FORMS = {
  'images': Form(np.uint8, 'N, H, W, C', _odd_images),
  'vectors': Form(
    np.float32,
    'N, F',
    _odd_vectors,
    _finite,
    counted=' features',
    defaults={'model': 'dense', 'proxy_task': 'reconstruction_of_features'},
  ),
  'tokens': Form(
    np.int32,
    'N, L',
    _odd_tokens,
    _known_words,
    counted=' words at most',
    # An embedding's gradient is small: few texts have the word.
    defaults={
      'model': 'word_average',
      'learning_rate': 0.3,
      'proxy_task': 'words',
    },
  ),
}
