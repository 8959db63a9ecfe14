"""Static batch normalisation: statistics of given data, not moving averages.

Diao et al., HeteroFL (arXiv 2010.01264), Section 3, and SemiFL
(arXiv 2106.01432): nobody tracks statistics while it trains. Before a model is
used for inference, its means and variances are computed anew, in one pass over
data at the present weights.

A `FunctionalModel` shows moving averages only,
`new = m old + (1 - m) statistics`. Each of them has a constant momentum m. Two
passes over one batch tell m; the equation then gives the statistics exactly.
"""

import dataclasses

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols, randomness
from tff_ssl.models import functional, structures

# Examples of a pass where momenta are found.
_PROBED = 4


@dataclasses.dataclass(frozen=True)
class StaticStatistics:
  """How the statistics of a model's batch normalisation are recomputed.

  The statistics are means of those of minibatches, weighted by their examples,
  on the plain view. As in training, each minibatch is normalised by its own.

  Attributes:
    batch_size: Examples of a minibatch; the authors' code takes 250.
    momenta: m of each non-trainable weight; `None` where it does not move.
  """

  model: functional.FunctionalModel
  views: protocols.Views
  batch_size: int = 250
  momenta: tuple[float | None, ...] = dataclasses.field(init=False)

  def __post_init__(self):
    object.__setattr__(self, 'momenta', find_momenta(self.model))

  @property
  def has_any(self) -> bool:
    """Whether there are statistics at all."""
    return any(momentum is not None for momentum in self.momenta)

  def recompute(
    self,
    weights: tff.learning.models.ModelWeights,
    x: tf.Tensor,
    seed: tf.Tensor,
  ) -> tff.learning.models.ModelWeights:
    """Returns the weights with the statistics of `x`, as the views take it.

    Without examples they stay as they are. The seed is for dropout, which is on
    as in training.
    """
    old = tf.nest.flatten(weights.non_trainable)
    size = tf.shape(x)[0]

    def add_batch(step, totals):
      part = x[step * self.batch_size : (step + 1) * self.batch_size]
      _, new = self.model.predict(
        weights.trainable,
        weights.non_trainable,
        self.views.plain(part),
        training=True,
        seed=randomness.fold_in(seed, step),
      )
      share = tf.cast(tf.shape(part)[0] / size, tf.float32)
      added = []
      for total, before, after, momentum in zip(
        totals, old, tf.nest.flatten(new), self.momenta, strict=True
      ):
        if momentum is not None:
          # new = m old + (1 - m) statistics, solved for the statistics.
          statistics = before + (after - before) / (1 - momentum)
          total += tf.cast(share, total.dtype) * statistics
        added.append(total)
      return step + 1, added

    _, totals = tf.while_loop(
      lambda step, _: step * self.batch_size < size,
      add_batch,
      (tf.constant(0), [tf.zeros_like(value) for value in old]),
    )
    chosen = [
      value if momentum is None else tf.where(size > 0, total, value)
      for total, value, momentum in zip(totals, old, self.momenta, strict=True)
    ]
    return tff.learning.models.ModelWeights(
      weights.trainable, tf.nest.pack_sequence_as(weights.non_trainable, chosen)
    )


def find_momenta(model: functional.FunctionalModel) -> tuple[float | None, ...]:
  """Returns the momentum of each of a model's moving averages.

  It is a number in [0, 1) for each non-trainable weight, `None` for one that
  training does not move. A weight that moves, but not as an average of its old
  value and one that the inputs give, is a `ValueError`.
  """
  initial = model.initial_weights(0)
  if not tf.nest.flatten(initial.non_trainable):
    return ()
  structures.refuse_several(model.input_spec, 'Static statistics need')
  shape = [_PROBED, *model.input_spec.shape[1:]]
  x = np.random.default_rng(0).normal(size=shape)
  x = tf.cast(x, model.input_spec.dtype)

  def move(values):
    _, new = model.predict(
      initial.trainable, values, x, training=True, seed=tf.constant([0, 0])
    )
    return new

  # Means start at 1: inputs with a mean of 0 would not move a mean of 0.
  first = [
    np.ones_like(value) if value.ndim == 1 else value
    for value in initial.non_trainable
  ]
  second = move(first)
  third = move(second)
  return tuple(
    _momentum(*(np.asarray(value, np.float64) for value in values))
    for values in zip(first, second, third, strict=True)
  )


def _momentum(first, second, third):
  """Returns m where values move as `m old + (1 - m) constant`."""
  move, next_move = second - first, third - second
  if not np.any(move):
    return None
  # Rounded to four digits, as people choose momenta. Rounding errors reach the
  # fifth digit, which would be percents of 1 - m if m is near 1.
  momentum = round(np.sum(move * next_move) / np.sum(np.square(move)), 4)
  rest = np.abs(next_move - momentum * move).max()
  if not (0 <= momentum < 1 and rest <= 1e-3 * np.abs(move).max()):
    raise ValueError(
      f'model moves a non-trainable weight of shape {first.shape} otherwise '
      'than by a moving average, so that it has no static statistics: take '
      'batch normalisation from tf.keras.layers, or norm="group".'
    )
  return float(abs(momentum))
