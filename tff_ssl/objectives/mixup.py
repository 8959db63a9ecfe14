"""Mixup, and what trains on mixtures: the objectives of SemiFL and of FedPL.

Zhang et al., mixup: Beyond Empirical Risk Minimization (arXiv 1710.09412): with
lambda from Beta(a, a), an input `lambda x_1 + (1 - lambda) x_2` is to be
labelled y_1 with weight lambda and y_2 with weight 1 - lambda.

SemiFL (Diao et al., arXiv 2106.01432), whose clients get their pseudo-labels
once, before the first step: for a confident example x with label y, and another
one x' with label y', drawn from all of the client's, confident or not,

```math
fix   CE(f(A(x)), y)
mix   lambda CE(f(m), y) + (1 - lambda) CE(f(m), y'),
      m = lambda alpha(x) + (1 - lambda) alpha(x')
```

with alpha the weak view, A the strong one; the loss is the mean of
`fix + weight * mix` (`FixAndMix`).

Federated pseudo-labelling, a baseline of FedUL (Lu et al., ICLR 2022, arXiv
2204.03304, Section 5.1 and Appendix D.2), after SemiFL. `PriorLabels` gives all
examples of a set the class of its largest prior. `ConfidenceMix` keeps these
labels, or takes the model's own argmax, and tells confident examples (x+, y+)
from others (x-, y-):

```math
L_fix = l(f(x^+), y^+)                                                  (Eq. 15)
L_mix = mu l(f(x_mix), y^+) + (1 - mu) l(f(x_mix), y^-)                 (Eq. 16)
x_mix = mu x^+ + (1 - mu) x^-, mu = lambda_mix ~ Beta(a, a)             (Eq. 17)
L = L_fix + lambda L_mix                                                (Eq. 14)
```
"""

from __future__ import annotations

import collections
import dataclasses
from typing import NamedTuple

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, unless
from tff_ssl.objectives.selection import THRESHOLD
from tff_ssl.objectives.supervised import Checked, forward_weak
from tff_ssl.objectives.wrappers import Wrapper

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.models import structures
  from tff_ssl.objectives import losses, selection, surrogate_sets

_WEIGHED = unless('mixup_weight', 0, 'mixes nothing')
MIXUP_WEIGHT = Setting(
  'mixup_weight',
  float,
  'Weight of the loss on mixtures of examples; 0 mixes none.',
  at_least=0,
)
MIXUP_CONCENTRATION = Setting(
  'mixup_concentration',
  float,
  'a of the Beta(a, a) from which shares of mixtures are drawn, above 0.',
  above=0,
  used_when=(_WEIGHED,),
)
UNMIXED_BATCHES = Setting(
  'unmixed_batches',
  str,
  'Minibatches that leave nothing to mix are trained, or skipped as in the '
  "authors' code.",
  choices=('trained', 'skipped'),
)
PSEUDO_LABELS = Setting(
  'pseudo_labels',
  str,
  'Labels after the first rounds: of the sets still, or of the model as in the '
  "authors' code.",
  choices=('sets', 'model'),
)
MIX = Setting(
  'mix',
  str,
  'What is mixed of a confident example and another one: inputs, or logits as '
  "in the authors' code.",
  choices=('inputs', 'logits'),
  used_when=(_WEIGHED,),
)


def beta_weights(seed: tf.Tensor, shape, concentration: float) -> tf.Tensor:
  """Draws mixing weights from Beta(a, a), a function of the seed alone.

  `X / (X + Y)` has that distribution for independent X and Y from Gamma(a). A
  concentration a of 1 is uniform, less prefers 0 and 1 to the middle.
  """
  x, y = (
    tf.random.stateless_gamma(
      shape, randomness.fold_in(seed, place), float(concentration)
    )
    for place in (0, 1)
  )
  return x / (x + y)


def mix(first: tf.Tensor, second: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
  """Returns `weights * first + (1 - weights) * second`, `float [n, ...]`.

  Weights are one for all, `[]`, or one per example, `[n]`. Structures of
  several inputs raise a `TypeError`.
  """
  structures.refuse_several(first, 'Mixup needs')
  ones = [1] * (first.shape.rank - weights.shape.rank)
  shape = tf.concat([tf.shape(weights), tf.constant(ones, tf.int32)], 0)
  weights = tf.cast(tf.reshape(weights, shape), first.dtype)
  return weights * first + (1 - weights) * second


def mixed_cross_entropy(
  first_labels: tf.Tensor,
  second_labels: tf.Tensor,
  logits: tf.Tensor,
  weights: tf.Tensor,
) -> tf.Tensor:
  """Returns the cross-entropy of each mixture, mixed as its example was.

  `first_labels` are those of the examples that have weight `weights`.
  """
  logits = tf.cast(logits, tf.float32)
  first, second = (
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    for labels in (first_labels, second_labels)
  )
  return mix(first, second, weights)


class MixPool(NamedTuple):
  """The anchors of `FixAndMix`: what the other examples are drawn from.

  Attributes:
    x: Inputs `[n, ...]`, all that the client has.
    labels: `int32 [n]`, their pseudo-labels, none of them missing.
  """

  x: tf.Tensor
  labels: tf.Tensor


@dataclasses.dataclass(frozen=True)
class FixAndMix(Checked):
  """SemiFL: confident examples, whose `y` are pseudo-labels, alone and mixed.

  As in the authors' code, lambda is one for all of a minibatch, other examples
  are drawn uniformly with replacement, and both kinds of inputs go through the
  model in passes of their own, so that batch normalisation sees them apart.
  Its anchors are a `MixPool`.

  Attributes:
    views: Gives the weak and the strong view (`tff_ssl.augmentation`).
    mixup_weight: Of the mixed loss, >= 0; with 0 nothing is mixed.
    mixup_concentration: a > 0.
  """

  views: protocols.Views
  mixup_weight: float = 1.0
  mixup_concentration: float = 0.75

  metric_names = ('loss', 'mixup_loss')
  settings = (MIXUP_WEIGHT, MIXUP_CONCENTRATION)

  def __call__(self, predict, batch, anchors, seed):
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
    weight = beta_weights(seeds[1], [], self.mixup_concentration)
    mixture = mix(
      self.views.weak(batch['x'], seeds[2]),
      self.views.weak(structures.gather(pool.x, others), seeds[3]),
      weight,
    )
    logits = predict(mixture, seed=seeds[4])
    return mixed_cross_entropy(
      batch['y'], tf.gather(pool.labels, others), logits, weight
    )


@dataclasses.dataclass(frozen=True)
class PriorLabels:
  """Cross-entropy with the class of the largest prior in an example's set.

  Needs `class_priors` in the minibatch. Of several largest priors the first one
  counts.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
  """

  views: protocols.Views

  metric_names = ('loss', 'accuracy', 'mask_rate', 'pseudo_label_accuracy')

  def __call__(self, predict, batch, anchors, seed):
    del anchors
    _, logits = forward_weak(self.views, predict, batch, seed)
    labels, is_known = _prior_labels(batch, logits)
    loss, counts = losses.supervised(labels, logits)
    total, size = counts['loss']
    total = tf.where(is_known, total, float('nan'))
    return loss, _metrics(
      (total, size), logits, labels, tf.ones(tf.shape(labels)), batch
    )


@dataclasses.dataclass(frozen=True)
class ConfidenceMix(Checked):
  """FedPL: cross-entropy of confident examples, and mixup across confidence.

  Confidence is that of the present weights in train mode, from the forward pass
  that L_fix trains: the paper's words, "the confidence is given by model
  predictions", leave open of which model, and this is what the authors' code
  does; SemiFL asks the model as it was received. In a minibatch the i-th
  confident example is mixed with the i-th other one, as many as there are of
  both, with one lambda_mix. Moving statistics of batch normalisation do not
  follow mixed images.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    threshold: tau, the confidence from which an example is confident.
    pseudo_labels: y+ and y-: 'sets', the class of the largest prior in an
      example's set, as the paper says, or 'model', the model's own argmax, as
      its code has it.
    mix: What is mixed: 'inputs' (Eq. 17), or 'logits' as in the authors' code,
      lambda_mix f(x+) + (1 - lambda_mix) f(x-) in place of f(x_mix).
    mixup_weight: lambda >= 0.
    mixup_concentration: a > 0 of the Beta distribution.
    unmixed_batches: What `build_fedpl` makes of a minibatch of which all
      examples are confident, or none. 'trained': L_mix is 0, and L_fix is
      trained alone (Eq. 14). 'skipped': no step is taken, as in the authors'
      code; only Adam's count of steps goes on.
  """

  views: protocols.Views
  threshold: float = 0.4
  pseudo_labels: str = 'sets'
  mix: str = 'inputs'
  mixup_weight: float = 0.3
  mixup_concentration: float = 0.75
  unmixed_batches: str = 'trained'

  metric_names = PriorLabels.metric_names
  settings = (
    *(THRESHOLD, PSEUDO_LABELS, MIX, MIXUP_WEIGHT, MIXUP_CONCENTRATION),
    UNMIXED_BATCHES,
  )

  def __call__(self, predict, batch, anchors, seed):
    del anchors
    x, logits = forward_weak(self.views, predict, batch, seed)
    labels, mask = selection.pseudo_labels(logits, self.threshold)
    is_known = True
    if self.pseudo_labels == 'sets':
      labels, is_known = _prior_labels(batch, logits)
    total = tf.reduce_sum(losses.masked_cross_entropy(labels, logits, mask))
    fix = total / tf.maximum(tf.reduce_sum(mask), 1.0)
    loss = fix + self.mixup_weight * self._mixed(
      predict, x, logits, labels, mask, seed
    )
    size = tf.cast(tf.shape(mask)[0], tf.float32)
    total = tf.where(is_known, loss * size, float('nan'))
    return loss, _metrics((total, size), logits, labels, mask, batch)

  def _mixed(self, predict, x, logits, labels, mask, seed):
    """Returns L_mix of as many pairs as there are."""
    confident, others = (tf.where(part)[:, 0] for part in (mask > 0, mask <= 0))
    num_pairs = tf.minimum(tf.size(confident), tf.size(others))
    pairs = confident[:num_pairs], others[:num_pairs]
    share = beta_weights(
      randomness.fold_in(seed, 2), [], self.mixup_concentration
    )

    def mixed(values):
      return mix(*(structures.gather(values, part) for part in pairs), share)

    if self.mix == 'logits':
      mixed_logits = mixed(logits)
    else:
      mixed_logits = predict.probe(
        mixed(x), randomness.fold_in(seed, 3), if_empty=logits[:0]
      )
    towards = (tf.gather(labels, part) for part in pairs)
    total = tf.reduce_sum(mixed_cross_entropy(*towards, mixed_logits, share))
    return total / tf.maximum(tf.cast(num_pairs, tf.float32), 1.0)


@dataclasses.dataclass(frozen=True)
class OnlyMixed(Wrapper):
  """`ConfidenceMix`, but for minibatches with examples of one kind alone.

  In those, where nothing can be mixed, it is 0, and with it its gradient: the
  authors' code takes no step then. For that the optimizer must rest, too
  (`optimizers.rest_without_gradient`).

  Attributes:
    objective: A `ConfidenceMix`, maybe with a penalty on it.
  """

  def __call__(self, predict, batch, anchors, seed):
    loss, metrics = self.objective(predict, batch, anchors, seed)
    confident, size = metrics['mask_rate']
    is_mixed = (confident > 0) & (confident < size)
    return tf.where(is_mixed, loss, tf.zeros_like(loss)), metrics


def _prior_labels(batch, logits):
  """Returns the classes of the largest priors, and whether all have priors.

  A set without priors has no label: its client must not count.
  """
  priors = surrogate_sets.class_priors(batch, batch['y'], logits)
  is_known = tf.reduce_all(tf.math.is_finite(priors))
  return tf.argmax(priors, axis=-1, output_type=tf.int32), is_known


def _metrics(loss, logits, labels, mask, batch):
  predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
  size = tf.cast(tf.shape(mask)[0], tf.float32)
  return collections.OrderedDict(
    loss=loss,
    accuracy=surrogate_sets.count_right(predicted, batch),
    mask_rate=(tf.reduce_sum(mask), size),
    pseudo_label_accuracy=surrogate_sets.count_right(labels, batch, mask),
  )
