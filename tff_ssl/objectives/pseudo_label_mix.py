"""FedPL's objectives: labels out of class priors, and mixup across confidence.

Federated pseudo-labelling, a baseline of FedUL (Lu et al., ICLR 2022,
arXiv 2204.03304, Section 5.1 and Appendix D.2), after SemiFL (Diao et al.,
arXiv 2106.01432). `PriorLabels` gives all examples of a set the class of its
largest prior. `ConfidenceMix` keeps these labels, or takes the model's own
argmax, and tells confident examples (x+, y+) from others (x-, y-):

```
L_fix = l(f(x+), y+)                                                   (Eq. 15)
L_mix = lambda_mix l(f(x_mix), y+) + (1 - lambda_mix) l(f(x_mix), y-)  (Eq. 16)
x_mix = lambda_mix x+ + (1 - lambda_mix) x-,  lambda_mix ~ Beta(a, a)  (Eq. 17)
L     = L_fix + lambda L_mix                                           (Eq. 14)
```
"""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, unless
from tff_ssl.objectives.consistency import THRESHOLD
from tff_ssl.objectives.maths import mixup
from tff_ssl.objectives.maths.mixup import MIXUP_CONCENTRATION, MIXUP_WEIGHT

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.models import structures
  from tff_ssl.objectives.maths import class_priors, losses

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
  'What a confident and another example are mixed by: inputs, or logits as in '
  "the authors' code.",
  choices=('inputs', 'logits'),
  used_when=(unless('mixup_weight', 0, 'mixes nothing'),),
)


_METRICS = ('loss', 'accuracy', 'mask_rate', 'pseudo_label_accuracy')


@dataclasses.dataclass(frozen=True)
class PriorLabels:
  """Cross-entropy with the class of the largest prior in an example's set.

  Needs `class_priors` in the minibatch. Of several largest priors the first one
  counts.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
  """

  views: protocols.Views

  metric_names = _METRICS

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    _, logits = _forward(self.views, predict, batch, seed)
    labels, is_known = _prior_labels(batch, logits)
    loss, counts = losses.supervised(labels, logits)
    total, size = counts['loss']
    total = tf.where(is_known, total, float('nan'))
    return loss, _metrics(
      (total, size), logits, labels, tf.ones(tf.shape(labels)), batch
    )


@dataclasses.dataclass(frozen=True)
class ConfidenceMix:
  """Cross-entropy of confident examples, and mixup across confidence.

  Confidence is that of the present weights in train mode, from the forward pass
  that L_fix trains: the paper's words, "the confidence is given by model
  predictions", leave open of which model, and this is what the authors' code
  does; SemiFL asks the model as it was received. In a minibatch the i-th
  confident example is mixed with the i-th other one, as many as there are of
  both, with one lambda_mix. Where there are none of one kind, L_mix is 0
  (`OnlyMixed`: what the authors' code does then). Moving statistics of batch
  normalisation do not follow mixed images.

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
  """

  views: protocols.Views
  threshold: float = 0.4
  pseudo_labels: str = 'sets'
  mix: str = 'inputs'
  mixup_weight: float = 0.3
  mixup_concentration: float = 0.75

  metric_names = _METRICS

  def __post_init__(self):
    THRESHOLD.check(self.threshold)
    MIXUP_WEIGHT.check(self.mixup_weight)
    MIXUP_CONCENTRATION.check(self.mixup_concentration)
    PSEUDO_LABELS.check(self.pseudo_labels)
    MIX.check(self.mix)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    x, logits = _forward(self.views, predict, batch, seed)
    labels, mask = losses.pseudo_labels(logits, self.threshold)
    is_known = True
    if self.pseudo_labels == 'sets':
      labels, is_known = _prior_labels(batch, logits)
    total = tf.reduce_sum(losses.masked_cross_entropy(labels, logits, mask))
    count = tf.reduce_sum(mask)
    fix = total / tf.maximum(count, 1.0)

    confident, others = (tf.where(part)[:, 0] for part in (mask > 0, mask <= 0))
    num_pairs = tf.minimum(tf.size(confident), tf.size(others))
    pairs = confident[:num_pairs], others[:num_pairs]

    share = mixup.beta_weights(
      randomness.fold_in(seed, 2), [], self.mixup_concentration
    )

    def mixed(values):
      return mixup.mix(
        *(structures.gather(values, part) for part in pairs), share
      )

    if self.mix == 'logits':
      mixed_logits = mixed(logits)
    else:
      mixed_logits = predict.probe(
        mixed(x), randomness.fold_in(seed, 3), if_empty=logits[:0]
      )
    towards = (tf.gather(labels, part) for part in pairs)
    total = tf.reduce_sum(
      mixup.mixed_cross_entropy(*towards, mixed_logits, share)
    )
    mix = total / tf.maximum(tf.cast(num_pairs, tf.float32), 1.0)
    loss = fix + self.mixup_weight * mix
    size = tf.cast(tf.shape(mask)[0], tf.float32)
    total = tf.where(is_known, loss * size, float('nan'))
    return loss, _metrics((total, size), logits, labels, mask, batch)


@dataclasses.dataclass(frozen=True)
class OnlyMixed:
  """`ConfidenceMix`, but for minibatches with examples of one kind alone.

  In those, where nothing can be mixed, it is 0, and with it its gradient: the
  authors' code takes no step then. For that the optimizer must rest, too
  (`optimizers.rest_without_gradient`).

  Attributes:
    objective: A `ConfidenceMix`, maybe with a penalty on it.
  """

  objective: protocols.Objective

  metric_names = _METRICS

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss, and the metrics that the objective has anyway."""
    loss, metrics = self.objective(predict, batch, anchors, seed)
    confident, size = metrics['mask_rate']
    is_mixed = (confident > 0) & (confident < size)
    return tf.where(is_mixed, loss, tf.zeros_like(loss)), metrics


def _prior_labels(batch, logits):
  """Returns the classes of the largest priors, and whether all have priors.

  A set without priors has no label: its client must not count.
  """
  priors = class_priors.of_sets(batch, batch['y'], logits)
  is_known = tf.reduce_all(tf.math.is_finite(priors))
  return tf.argmax(priors, axis=-1, output_type=tf.int32), is_known


def _forward(views, predict, batch, seed):
  """Returns images and logits; the draws are those of `Supervised`."""
  x = views.weak(batch['x'], randomness.fold_in(seed, 0))
  return x, predict(x, training=True, seed=randomness.fold_in(seed, 1))


def _metrics(loss, logits, labels, mask, batch):
  predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
  size = tf.cast(tf.shape(mask)[0], tf.float32)
  return collections.OrderedDict(
    loss=loss,
    accuracy=class_priors.count_right(predicted, batch),
    mask_rate=(tf.reduce_sum(mask), size),
    pseudo_label_accuracy=class_priors.count_right(labels, batch, mask),
  )
