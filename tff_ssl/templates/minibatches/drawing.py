"""How many minibatches a local training has, and where they end."""

import dataclasses

import tensorflow as tf

from tff_ssl import checks, randomness, shared_settings
from tff_ssl.templates.minibatches import batches, kinds, streams
from tff_ssl.templates.minibatches.selection import Selection


@dataclasses.dataclass(frozen=True)
class Minibatches:
  """How minibatches are cut; exactly one of `steps` and `epochs` is given.

  Attributes:
    batch_size: B; `None` if minibatches are whole sets.
    steps: T, the number of minibatches.
    epochs: E, the number of passes.
    epoch_batches: 'separate', 'continuous' or 'matched'; see
      `tff_ssl.templates.minibatches`.
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
      1, batch_size=self.batch_size, steps=self.steps, epochs=self.epochs
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

  def draw(self, labels: tf.Tensor, seed: tf.Tensor) -> batches.Batches:
    """Draws the minibatches of one local training.

    Args:
      labels: `int32 [n]`, -1 where an example has none.
      seed: `int32 [2]`.
    """
    selection, batch_size = self.selection, self.batch_size
    is_either = selection.rows == 'either'
    steps = self.steps
    if steps is None and (is_either or self.epoch_batches == 'matched'):
      steps = -(-self.epochs * tf.shape(labels)[0] // batch_size)
    if steps is not None and selection.redrawn_mask_ratio is not None:
      return kinds.redrawn(labels, selection, steps, batch_size, seed)
    if is_either:
      return kinds.either(labels, selection, steps, batch_size, seed)
    shuffle_seed = randomness.fold_in(seed, randomness.Purpose.SHUFFLE)
    if selection.rows == 'sets':
      return batches.whole_sets(labels, self.epochs, shuffle_seed)
    stream = streams.stream_of(
      labels, selection.rows, selection.redrawn_mask_ratio
    )
    if steps is not None:
      return batches.repeated(stream, batch_size, steps, shuffle_seed)
    cut = (
      batches.separate
      if self.epoch_batches == 'separate'
      else batches.continuous
    )
    return cut(stream, batch_size, self.epochs, shuffle_seed)
