"""Pseudo-labels that agree with the classes of a client's own labels.

A model that has seen few labels prefers some classes. Trained on its own
pseudo-labels it prefers them more, until it names one class alone. A client
that has a few labels knows better which classes it holds. With q the
probabilities by the model that it received, over all its examples,

```math
m(c)   mean of q(c) over all examples of the client
pi(c)  = (n(c) + kappa m(c)) / (n + kappa)    n(c) its labels of class c, n all
q'     ~ q pi(c) / m(c)                       over c, scaled to add up to 1
s      = (sum_c pi(c)^2 - v) / (1 - v)        v = n / (n + kappa)^2
r      = 1 / max(d s, 1)                      coverage of the d classes
```

pi is the posterior mean of the client's class shares, if a Dirichlet prior with
mean m and strength kappa stands for what the model found: few labels correct
only what the model denies, many say alone which classes there are. A client
without labels has pi = m, and changes nothing. Division by the model's own mean
is the distribution alignment of Berthelot et al. (ReMixMatch, arXiv 1911.09785,
Section 3.1), whose shares are those of all labels. Clients have shares of their
own, and so they are estimated for each.

Pseudo-labels of clients that hold few classes can do harm: they are of these
few classes, too (`results/parts.md`). So where r is too low, the client trains
on its labels alone. s estimates how likely two of its examples are of one class
(Simpson's index), and 1 / s is the effective number of its classes. v takes out
what a small number of labels adds: ten labels cannot show 47 classes. A client
without labels makes pseudo-labels in any case: it has nothing else to train on.
"""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting
from tff_ssl.objectives import consistency
from tff_ssl.objectives.selection import SELECTION
from tff_ssl.objectives.supervised import CLASS_WEIGHTS

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.objectives import losses, selection

PRIOR_STRENGTH = Setting(
  'prior_strength',
  float,
  'kappa, as how many labels of a client the predictions of the received model '
  'count, where the shares of its classes are estimated. The larger, the less '
  'are pseudo-labels moved towards the classes of its labels.',
  above=0,
)
MIN_COVERAGE = Setting(
  'min_coverage',
  float,
  'A client whose effective number of classes is a smaller share of all '
  'classes than this makes no pseudo-labels. 0: all clients make them.',
  at_least=0,
  at_most=1,
)
# Of a class that the model finds nowhere.
_LEAST_SHARE = 1e-6


@dataclasses.dataclass(frozen=True)
class AlignedLabels(consistency.Selecting):
  """Cross-entropy on labelled examples, and CRL with aligned pseudo-labels.

  ```math
  L = L_s(labelled minibatch) + lambda_u L_u(minibatch)
  ```

  with L_s and L_u of `tff_ssl.SemiSupervised`, but that the received model
  labels, on the weak view, and q' takes the place of its probabilities q
  (`tff_ssl.objectives.aligned`), also where confidence decides which
  pseudo-labels count.

  Attributes:
    views: Gives the weak and the strong view (`tff_ssl.augmentation`).
    threshold: As in `tff_ssl.ConsistencyRegularization`.
    pseudo_label_rule: As there, but for the default.
    min_confidence: As there.
    max_energy: As there.
    prior_strength: kappa > 0.
    min_coverage: The r, in [0, 1], below which a client with labels makes no
      pseudo-labels.
    unlabelled_weight: lambda_u >= 0.
    class_weights: Of L_s; as in `tff_ssl.Supervised`.
  """

  views: protocols.Views
  threshold: float = 0.95
  pseudo_label_rule: str = 'client_adaptive'
  min_confidence: float = 0.5
  max_energy: float = -5.0
  prior_strength: float = 10.0
  min_coverage: float = 0.5
  unlabelled_weight: float = 1.0
  class_weights: tuple[float, ...] | None = None

  needs_labelled_batch = True
  metric_names = consistency.SemiSupervised.metric_names
  settings = (
    *SELECTION,
    PRIOR_STRENGTH,
    MIN_COVERAGE,
    consistency.UNLABELLED_WEIGHT,
    CLASS_WEIGHTS,
  )

  def survey(self, probabilities, examples, seed):
    """Returns log pi / m, whether it makes pseudo-labels, and class thresholds.

    They are `float32 [d]`, 1 or 0, and, by the rule 'client_adaptive' alone,
    `float32 [d]`.
    """
    found = probabilities(self.views.weak(examples['x'], seed))
    means, shares, coverage = class_shares(
      found, examples['y'], self.prior_strength
    )
    shift = tf.math.log(shares) - tf.math.log(means)
    # A coverage that is not finite tells nothing.
    holds_few = (coverage < self.min_coverage) & tf.reduce_any(
      examples['y'] >= 0
    )
    surveyed = collections.OrderedDict(
      alignment=shift, makes_pseudo_labels=tf.cast(~holds_few, tf.float32)
    )
    if self.pseudo_label_rule == 'client_adaptive':
      aligned = tf.nn.softmax(tf.math.log(found) + shift)
      surveyed['class_thresholds'] = selection.class_thresholds(aligned)
    return surveyed

  def __call__(self, predict, batch, anchors, seed):
    labelled = batch['labelled']
    weak = self.views.weak(batch['x'], randomness.fold_in(seed, 1))
    teacher = predict.at(anchors, weak) + batch['alignment']

    def select(logits):
      labels, weights = self.select(logits, batch.get('class_thresholds'))
      return labels, batch['makes_pseudo_labels'] * weights

    logits, strong_logits = consistency.forward(
      predict,
      [
        self.views.weak(labelled['x'], randomness.fold_in(seed, 0)),
        self.views.strong(batch['x'], randomness.fold_in(seed, 2)),
      ],
      [randomness.fold_in(seed, 3), randomness.fold_in(seed, 4)],
      'auto',
      select,
      first_may_be_empty=True,
      teacher_logits=teacher,
    )
    supervised, metrics = losses.supervised(
      labelled['y'], logits, self.class_weights
    )
    unlabelled, pseudo = consistency.pseudo_label_loss(
      teacher, strong_logits, select, batch
    )
    pseudo['unlabelled_loss'] = pseudo.pop('loss')
    return supervised + self.unlabelled_weight * unlabelled, (
      collections.OrderedDict({**metrics, **pseudo})
    )


def class_shares(
  probabilities: tf.Tensor, labels: tf.Tensor, prior_strength: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Returns m, pi and r of a client, `float32 [d]`, `[d]` and `[]`.

  Args:
    probabilities: q, `float32 [n, d]`; n may be 0.
    labels: `int32 [n]`, -1 where there is none.
    prior_strength: kappa, > 0.
  """
  # `one_hot` of -1 has no 1.
  counts = tf.reduce_sum(tf.one_hot(labels, probabilities.shape[-1]), axis=0)
  size = tf.maximum(tf.cast(tf.shape(labels)[0], tf.float32), 1.0)
  means = tf.maximum(tf.reduce_sum(probabilities, axis=0) / size, _LEAST_SHARE)
  known = tf.reduce_sum(counts)
  shares = (counts + prior_strength * means) / (known + prior_strength)
  noise = known / tf.square(known + prior_strength)
  repeats = (tf.reduce_sum(tf.square(shares)) - noise) / tf.maximum(
    1.0 - noise, _LEAST_SHARE
  )
  return means, shares, 1.0 / tf.maximum(probabilities.shape[-1] * repeats, 1.0)
