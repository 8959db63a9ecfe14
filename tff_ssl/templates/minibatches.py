"""Which examples make up the minibatches of a participant's local training.

`Selection` says which examples are trained on. A stream is the sequence of
indices that minibatches are cut from: passes, each a new permutation of the
selected examples. `Minibatches` says how many minibatches are cut, and where
they end:

```
steps                    T minibatches, all of them full, of as many passes as
                         that takes
epochs, 'separate'       E passes; the last minibatch of each may be smaller
epochs, 'continuous'     E passes without a cut between them; only the last
                         minibatch of all may be smaller. The batches of TFF's
                         own `repeat(E).batch(B)`
epochs, 'matched'        as many full minibatches as E continuous passes over
                         *all* examples would have, selected or not
```

Two selections cut their minibatches in other ways: 'either' draws for each
minibatch whether it is labelled, and a mask that is drawn anew hides other
labels in each epoch. If examples lie in sets, a whole set may be a minibatch
(`rows='sets'`).
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tff_ssl import checks, randomness, shared_settings
from tff_ssl.models import structures

_ROWS = ('all', 'labelled', 'unlabelled', 'either', 'sets')
# The label of an example whose label may not be seen.
_HIDDEN = -1

Examples = collections.OrderedDict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Selection:
  """Which of its examples a participant trains on.

  Attributes:
    rows: 'all', 'labelled', 'unlabelled', or 'either': each minibatch is all
      labelled or all unlabelled, drawn at random (Hegde et al., Label Hungry?
      Not Anymore, the joint method). 'sets': each set of examples with the
      same `y` >= 0 is a minibatch, once per pass, in random order.
    labelled_probability: For 'either', the probability of a labelled minibatch;
      by default the labelled examples' share of all. Where there is but one
      kind of examples, minibatches are of that kind.
    redrawn_mask_ratio: If given, the share of labels that is hidden at random,
      others in every epoch: `min(int(ratio * n), n - 1)` of n, so that one is
      left. Every example must have a label then. An epoch is a pass; where all
      minibatches are full, it is as many of them as hold n examples.
  """

  rows: str = 'all'
  labelled_probability: float | None = None
  redrawn_mask_ratio: float | None = None

  def __post_init__(self):
    checks.choice(_ROWS, rows=self.rows)
    if self.labelled_probability is not None:
      checks.fractions(labelled_probability=self.labelled_probability)
      if self.rows != 'either':
        raise ValueError(
          f'labelled_probability={self.labelled_probability} does not fit '
          f"rows={self.rows!r}: only 'either' draws."
        )
    if self.redrawn_mask_ratio is not None:
      checks.fractions(redrawn_mask_ratio=self.redrawn_mask_ratio)
      if self.rows in ('all', 'sets'):
        raise ValueError(
          f'redrawn_mask_ratio={self.redrawn_mask_ratio} does not fit '
          f"rows={self.rows!r}, which hides no label: take 'labelled'."
        )

  def of(self, examples: Examples) -> Examples:
    """Returns those examples that some minibatch may hold."""
    if self.rows not in ('labelled', 'unlabelled'):
      return examples
    if self.redrawn_mask_ratio is not None:
      return examples
    wanted = examples['y'] >= 0
    if self.rows == 'unlabelled':
      wanted = ~wanted
    return gather(examples, tf.where(wanted)[:, 0])


class Batches(NamedTuple):
  """The minibatches of one local training.

  Attributes:
    num_steps: `int32` scalar, how many there are.
    indices: From a step to the indices of its examples, `int [b]`.
    is_hidden: From a step to a `bool` scalar, whether the labels of its
      minibatch are hidden from the process; `None` where they never are.
  """

  num_steps: tf.Tensor
  indices: Callable[[tf.Tensor], tf.Tensor]
  is_hidden: Callable[[tf.Tensor], tf.Tensor] | None = None

  def cut(self, examples: Examples, step: tf.Tensor) -> Examples:
    """Returns the minibatch of a step."""
    batch = gather(examples, self.indices(step))
    if self.is_hidden is not None:
      labels = batch['y']
      hidden = tf.fill(tf.shape(labels), _HIDDEN)
      batch['y'] = tf.where(self.is_hidden(step), hidden, labels)
    return batch


@dataclasses.dataclass(frozen=True)
class Minibatches:
  """How minibatches are cut; exactly one of `steps` and `epochs` is given.

  Attributes:
    batch_size: B; `None` if minibatches are whole sets.
    steps: T, the number of minibatches.
    epochs: E, the number of passes.
    epoch_batches: 'separate', 'continuous' or 'matched'; see the module.
    selection: The examples in question.
  """

  batch_size: int | None
  steps: int | None = None
  epochs: int | None = None
  epoch_batches: str = 'separate'
  selection: Selection = Selection()

  def __post_init__(self):
    if (self.steps is None) == (self.epochs is None):
      raise ValueError(
        f'Give exactly one of steps={self.steps} and epochs={self.epochs}.'
      )
    checks.integers_at_least(
      1,
      optional=True,
      batch_size=self.batch_size,
      steps=self.steps,
      epochs=self.epochs,
    )
    is_in_sets = self.selection.rows == 'sets'
    if (self.batch_size is None) != is_in_sets or (
      is_in_sets and (self.steps or self.epoch_batches != 'separate')
    ):
      raise ValueError(
        f'batch_size={self.batch_size}, steps={self.steps} and epoch_batches='
        f'{self.epoch_batches!r} do not fit rows={self.selection.rows!r}: give '
        "epochs alone for 'sets', and a batch_size for others."
      )
    if self.epoch_batches != 'separate' and (
      self.steps is not None or self.selection.rows == 'either'
    ):
      raise ValueError(
        f'epoch_batches={self.epoch_batches!r} has no effect with steps='
        f'{self.steps} and rows={self.selection.rows!r}, where no pass ends: '
        'leave it out.'
      )
    if self.epoch_batches != 'matched':
      shared_settings.EPOCH_BATCHES.check(self.epoch_batches)

  def draw(self, labels: tf.Tensor, seed: tf.Tensor) -> Batches:
    """Draws the minibatches of one local training; labels are `int32 [n]`."""
    selection, batch_size = self.selection, self.batch_size
    is_either = selection.rows == 'either'
    steps = self.steps
    if steps is None and (is_either or self.epoch_batches == 'matched'):
      steps = -(-self.epochs * tf.shape(labels)[0] // batch_size)
    if steps is not None and selection.redrawn_mask_ratio is not None:
      return _redrawn(labels, selection, steps, batch_size, seed)
    if is_either:
      return _either(labels, selection, steps, batch_size, seed)
    shuffle_seed = randomness.fold_in(seed, randomness.Purpose.SHUFFLE)
    if selection.rows == 'sets':
      return _whole_sets(labels, self.epochs, shuffle_seed)
    stream = _stream_of(labels, selection.rows, selection.redrawn_mask_ratio)
    if steps is not None:
      return _repeated(stream, batch_size, steps, shuffle_seed)
    order = stream.order(self.epochs, shuffle_seed)
    if self.epoch_batches == 'separate':
      return _separate(stream, order, batch_size, self.epochs)
    num_steps = -(-self.epochs * stream.size // batch_size)
    return _cut(stream, order, batch_size, num_steps)


def gather(examples: Examples, indices: tf.Tensor) -> Examples:
  """Returns the examples with these indices, `int [n]`, as a batch."""
  return collections.OrderedDict(
    (key, structures.gather(value, indices)) for key, value in examples.items()
  )


def draw_labelled(
  labels: tf.Tensor, batch_size: int, num_steps: tf.Tensor, seed: tf.Tensor
) -> Batches:
  """Draws full minibatches of those examples that have a label (not -1).

  If none has one, all minibatches are empty.
  """
  return _repeated(
    _stream_of(labels, 'labelled'),
    batch_size,
    num_steps,
    randomness.fold_in(seed, randomness.Purpose.SHUFFLE_LABELLED),
  )


class _Stream(NamedTuple):
  """Passes over selected examples, each in an order of its own.

  Attributes:
    size: `int32` scalar, examples in a pass.
    order: From (passes, seed) to the indices of all passes, `int [passes *
      size]`.
    is_hidden: Whether the labels may not be seen though they are there.
  """

  size: tf.Tensor
  order: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
  is_hidden: bool = False


def _stream_of(labels, rows, redrawn_mask_ratio=None) -> _Stream:
  """Returns the stream of 'all', 'labelled' or 'unlabelled' examples."""
  num_examples = tf.shape(labels)[0]
  if rows == 'all':
    return _Stream(
      num_examples,
      lambda passes, seed: tf.reshape(
        _shuffled_passes(num_examples, passes, seed), [-1]
      ),
    )
  is_labelled = rows == 'labelled'
  if redrawn_mask_ratio is not None:
    masked = _num_masked(num_examples, redrawn_mask_ratio)
    part = slice(masked, None) if is_labelled else slice(masked)
    return _Stream(
      num_examples - masked if is_labelled else masked,
      lambda passes, seed: tf.reshape(
        _shuffled_passes(num_examples, passes, seed)[:, part], [-1]
      ),
      not is_labelled,
    )
  wanted = labels >= 0 if is_labelled else labels < 0
  members = tf.cast(tf.where(wanted)[:, 0], tf.int32)
  size = tf.shape(members)[0]
  return _Stream(
    size,
    lambda passes, seed: tf.gather(
      members, tf.reshape(_shuffled_passes(size, passes, seed), [-1])
    ),
  )


def _shuffled_passes(num_examples, num_passes, seed):
  """Returns `num_passes` independent permutations, `int32 [passes, n]`."""
  keys = tf.random.stateless_uniform([num_passes, num_examples], seed)
  return tf.argsort(keys, axis=1)


def _num_masked(num_examples, ratio):
  """Returns `min(int(ratio * n), n - 1)`, at least 0, as Python counts it."""
  share = tf.cast(ratio * tf.cast(num_examples, tf.float64), tf.int32)
  return tf.maximum(tf.minimum(share, num_examples - 1), 0)


def _batches(num_steps, indices, stream):
  hidden = (lambda step: tf.constant(True)) if stream.is_hidden else None
  return Batches(num_steps, indices, hidden)


def _cut(stream, order, batch_size, num_steps) -> Batches:
  """Returns minibatches that follow each other in an order of all passes."""
  return _batches(
    num_steps,
    lambda step: order[step * batch_size : (step + 1) * batch_size],
    stream,
  )


def _filled(stream, batch_size, steps, seed):
  """Returns the order of as many passes as fill so many minibatches."""
  passes = -(-steps * batch_size // tf.maximum(stream.size, 1))
  return stream.order(tf.where(stream.size > 0, passes, 0), seed)


def _repeated(stream, batch_size, steps, seed) -> Batches:
  """Returns `steps` full minibatches; none if there are no examples."""
  order = _filled(stream, batch_size, steps, seed)
  return _cut(stream, order, batch_size, tf.where(stream.size > 0, steps, 0))


def _separate(stream, order, batch_size, epochs) -> Batches:
  """Returns the minibatches of `epochs` passes, each cut for itself."""
  steps_per_epoch = -(-stream.size // batch_size)

  def indices(step):
    begin = (step % steps_per_epoch) * batch_size
    end = tf.minimum(begin + batch_size, stream.size)
    offset = (step // steps_per_epoch) * stream.size
    return order[offset + begin : offset + end]

  return _batches(epochs * steps_per_epoch, indices, stream)


def _whole_sets(labels, epochs, seed) -> Batches:
  """Returns minibatches that are sets of examples, each once in a pass."""
  sets = sets_of(labels)
  passes = _shuffled_passes(sets.nrows(out_type=tf.int32), epochs, seed)
  order = tf.reshape(passes, [-1])
  return Batches(tf.size(order), lambda step: sets[order[step]])


def sets_of(labels: tf.Tensor) -> tf.RaggedTensor:
  """Returns a row for each set that has examples: their indices.

  A label is the set that an example lies in; below 0 it lies in none.
  """
  by_set = tf.argsort(labels, stable=True)
  outside = tf.math.count_nonzero(labels < 0, dtype=tf.int32)
  by_set = by_set[outside:]
  _, _, sizes = tf.unique_with_counts(tf.gather(labels, by_set))
  return tf.RaggedTensor.from_row_lengths(by_set, sizes)


def _either(labels, selection, steps, batch_size, seed) -> Batches:
  """Returns full minibatches, each out of one of two streams, by lot."""
  labelled, unlabelled = (
    _stream_of(labels, rows) for rows in ('labelled', 'unlabelled')
  )
  is_labelled, count = _draw_kinds(
    selection, labelled.size, unlabelled.size, steps, seed
  )
  orders = [
    _filled(stream, batch_size, steps, randomness.fold_in(seed, purpose))
    for stream, purpose in (
      (labelled, randomness.Purpose.SHUFFLE_LABELLED),
      (unlabelled, randomness.Purpose.SHUFFLE),
    )
  ]
  # One after the other, so that a step slices without a branch.
  order = tf.concat(orders, 0)

  def indices(step):
    start = count(step) * batch_size
    start += tf.where(is_labelled[step], 0, tf.size(orders[0]))
    return order[start : start + batch_size]

  return Batches(
    tf.where(tf.size(labels) > 0, steps, 0),
    indices,
    lambda step: ~is_labelled[step],
  )


def _redrawn(labels, selection, steps, batch_size, seed) -> Batches:
  """Returns full minibatches under a mask that changes with each epoch."""
  num_examples = tf.shape(labels)[0]
  masked = _num_masked(num_examples, selection.redrawn_mask_ratio)
  sizes = (num_examples - masked, masked)
  epochs = -(-steps * batch_size // tf.maximum(num_examples, 1))
  # In each epoch's order, the first `masked` examples are those without labels.
  orders = _shuffled_passes(
    num_examples, epochs, randomness.fold_in(seed, randomness.Purpose.SHUFFLE)
  )
  if selection.rows == 'either':
    is_labelled, count = _draw_kinds(selection, *sizes, steps, seed)
    usable = num_examples
  else:
    is_labelled = tf.fill([steps], selection.rows == 'labelled')
    count = lambda step: step
    usable = sizes[selection.rows == 'unlabelled']

  def indices(step):
    epoch = step * batch_size // num_examples
    begin = tf.where(is_labelled[step], masked, 0)
    size = tf.where(is_labelled[step], *sizes)
    # Each kind is gone through in turn, whatever epoch its minibatches are in.
    places = (count(step) * batch_size + tf.range(batch_size)) % size
    return tf.gather(orders[epoch], begin + places)

  return Batches(
    tf.where(usable > 0, steps, 0), indices, lambda step: ~is_labelled[step]
  )


def _draw_kinds(selection, num_labelled, num_unlabelled, steps, seed):
  """Draws which minibatches are labelled, `bool [steps]`.

  Beside it stands a function of the step to how many of its kind came before.
  """
  probability = selection.labelled_probability
  if probability is None:
    probability = num_labelled / tf.maximum(num_labelled + num_unlabelled, 1)
  probability = tf.cast(probability, tf.float32)
  # Where there is but one kind, all minibatches are of that kind.
  probability = tf.where(num_labelled > 0, probability, 0.0)
  probability = tf.where(num_unlabelled > 0, probability, 1.0)
  draws = tf.random.stateless_uniform(
    [steps], randomness.fold_in(seed, randomness.Purpose.DRAW_KIND)
  )
  is_labelled = draws < probability
  labelled_so_far = tf.cumsum(tf.cast(is_labelled, tf.int32))

  def count(step):
    return tf.where(
      is_labelled[step], labelled_so_far[step] - 1, step - labelled_so_far[step]
    )

  return is_labelled, count
