"""Pseudo-labels that agree with the classes of a client's own labels.

A model that has seen few labels prefers some classes. Trained on its own
pseudo-labels it prefers them more, until it names one class alone. A client
that has a few labels knows better which classes it holds. With q the
probabilities by the model that it received, over all its examples,

```math
m(c)   mean of q(c) over all examples of the client
pi(c)  = (n(c) + kappa m(c)) / (n + kappa)    n(c) its labels of class c, n all
q'     ~ q pi(c) / m(c)                       over c, scaled to add up to 1
```

pi is the posterior mean of the client's class shares, if a Dirichlet prior with
mean m and strength kappa stands for what the model found: few labels correct
only what the model denies, many say alone which classes there are. A client
without labels has pi = m, and changes nothing. Division by the model's own mean
is the distribution alignment of Berthelot et al. (ReMixMatch, arXiv 1911.09785,
Section 3.1), whose shares are those of all labels. Clients have shares of their
own, and so they are estimated for each.
"""

from __future__ import annotations

import collections
import dataclasses
import functools

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
    unlabelled_weight: lambda_u >= 0.
    class_weights: Of L_s; as in `tff_ssl.Supervised`.
  """

  views: protocols.Views
  threshold: float = 0.95
  pseudo_label_rule: str = 'client_adaptive'
  min_confidence: float = 0.5
  max_energy: float = -5.0
  prior_strength: float = 10.0
  unlabelled_weight: float = 1.0
  class_weights: tuple[float, ...] | None = None

  needs_labelled_batch = True
  metric_names = consistency.SemiSupervised.metric_names
  settings = (
    *SELECTION,
    PRIOR_STRENGTH,
    consistency.UNLABELLED_WEIGHT,
    CLASS_WEIGHTS,
  )

  def survey(self, probabilities, examples, seed):
    """Returns `log_alignment`, and the thresholds of `client_adaptive`.

    Both are `float32 [d]`.
    """
    found = probabilities(self.views.weak(examples['x'], seed))
    shift = log_alignment(found, examples['y'], self.prior_strength)
    surveyed = collections.OrderedDict(alignment=shift)
    if self.pseudo_label_rule == 'client_adaptive':
      aligned = tf.nn.softmax(tf.math.log(found) + shift)
      surveyed['class_thresholds'] = selection.class_thresholds(aligned)
    return surveyed

  def __call__(self, predict, batch, anchors, seed):
    labelled = batch['labelled']
    weak = self.views.weak(batch['x'], randomness.fold_in(seed, 1))
    teacher = predict.at(anchors, weak) + batch['alignment']
    select = functools.partial(
      self.select, thresholds=batch.get('class_thresholds')
    )
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


def log_alignment(
  probabilities: tf.Tensor, labels: tf.Tensor, prior_strength: float
) -> tf.Tensor:
  """Returns `log pi / m` of each class, to be added to logits, `float32 [d]`.

  Args:
    probabilities: q, `float32 [n, d]`; n may be 0.
    labels: `int32 [n]`, -1 where there is none.
    prior_strength: kappa, > 0.
  """
  # `one_hot` of -1 has no 1.
  counts = tf.reduce_sum(tf.one_hot(labels, probabilities.shape[-1]), axis=0)
  size = tf.maximum(tf.cast(tf.shape(labels)[0], tf.float32), 1.0)
  means = tf.maximum(tf.reduce_sum(probabilities, axis=0) / size, _LEAST_SHARE)
  shares = (counts + prior_strength * means) / (
    tf.reduce_sum(counts) + prior_strength
  )
  return tf.math.log(shares) - tf.math.log(means)
