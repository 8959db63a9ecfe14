"""SemiFL's objective: confident examples, alone and mixed with others.

Diao et al., SemiFL (arXiv 2106.01432), whose clients get their pseudo-labels
once, before the first step. For a confident example x with label y, another one
x' with label y', drawn from all of the client's, confident or not, and lambda
from Beta(a, a),

```
fix   CE(f(A(x)), y)
mix   lambda CE(f(m), y) + (1 - lambda) CE(f(m), y'),
      m = lambda alpha(x) + (1 - lambda) alpha(x')
```

with alpha the weak view, A the strong one; the loss is the mean of
`fix + weight * mix`.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import NamedTuple

from etils import epy

from tff_ssl import protocols
from tff_ssl.objectives.maths import mixup
from tff_ssl.objectives.maths.mixup import MIXUP_CONCENTRATION, MIXUP_WEIGHT

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.models import structures
  from tff_ssl.objectives.maths import losses


class MixPool(NamedTuple):
  """The anchors of `FixAndMix`: what the other examples are drawn from.

  Attributes:
    x: Inputs `[n, ...]`, all that the client has.
    labels: `int32 [n]`, their pseudo-labels, none of them missing.
  """

  x: tf.Tensor
  labels: tf.Tensor


@dataclasses.dataclass(frozen=True)
class FixAndMix:
  """The mean of the loss above over a minibatch of confident examples.

  As in the authors' code, lambda is one for all of a minibatch, other examples
  are drawn uniformly with replacement, and both kinds of inputs go through the
  model in passes of their own, so that batch normalisation sees them apart.

  Attributes:
    views: Gives the weak and the strong view (`tff_ssl.augmentation`).
    mixup_weight: Of the mixed loss, >= 0; with 0 nothing is mixed.
    mixup_concentration: a > 0.
  """

  views: protocols.Views
  mixup_weight: float = 1.0
  mixup_concentration: float = 0.75

  metric_names = ('loss', 'mixup_loss')

  def __post_init__(self):
    MIXUP_WEIGHT.check(self.mixup_weight)
    MIXUP_CONCENTRATION.check(self.mixup_concentration)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator.

    Args:
      predict: A `Predictor`.
      batch: The minibatch; `y` are pseudo-labels.
      anchors: `MixPool`.
      seed: `int32 [2]`.
    """
    strong = self.views.strong(batch['x'], randomness.fold_in(seed, 0))
    logits = predict(strong, seed=randomness.fold_in(seed, 1))
    size = tf.cast(tf.shape(batch['y'])[0], tf.float32)
    total, metrics = losses.supervised(batch['y'], logits)
    mixed = tf.constant(0.0)
    if self.mixup_weight:
      mixed = tf.reduce_sum(self._mixed(predict, batch, anchors, seed))
      total += self.mixup_weight * mixed / tf.maximum(size, 1.0)
    return total, collections.OrderedDict(
      loss=metrics['loss'], mixup_loss=(mixed, size)
    )

  def _mixed(self, predict, batch, pool, seed):
    """Returns the mixed loss of each example, `float32 [n]`."""
    seeds = [randomness.fold_in(seed, place) for place in range(2, 7)]
    others = tf.random.stateless_uniform(
      tf.shape(batch['y']),
      seeds[0],
      maxval=tf.shape(pool.labels)[0],
      dtype=tf.int32,
    )
    weight = mixup.beta_weights(seeds[1], [], self.mixup_concentration)
    mixture = mixup.mix(
      self.views.weak(batch['x'], seeds[2]),
      self.views.weak(structures.gather(pool.x, others), seeds[3]),
      weight,
    )
    logits = predict(mixture, seed=seeds[4])
    return mixup.mixed_cross_entropy(
      batch['y'], tf.gather(pool.labels, others), logits, weight
    )
