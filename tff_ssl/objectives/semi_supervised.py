"""Labelled and unlabelled examples of one client in one step.

FixMatch (Zhang et al., Appendix H) and UDA (Xie et al., Unsupervised Data
Augmentation for Consistency Training, arXiv 1904.12848).
"""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting
from tff_ssl.objectives import consistency
from tff_ssl.objectives.consistency import THRESHOLD, VIEWS_FORWARD
from tff_ssl.objectives.supervised import check_class_weights

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.objectives.maths import losses, selection

UNLABELLED_LOSS = Setting(
  'unlabelled_loss',
  str,
  'Loss on unlabelled examples: crl, self_training on both views, or uda.',
  choices=('crl', 'self_training', 'uda'),
)
UNLABELLED_WEIGHT = Setting(
  'unlabelled_weight',
  float,
  "Weight of the unlabelled examples' loss.",
  at_least=0,
)
TEMPERATURE = Setting('temperature', float, 'T of UDA, above 0.', above=0)


@dataclasses.dataclass(frozen=True)
class SemiSupervised:
  """Cross-entropy on labelled examples plus CRL on all: the FixMatch loss.

  ```
  L = L_s(labelled minibatch) + lambda_u L_u(minibatch)
  ```

  with L_s of Zhang et al., Eq. 3, and L_u of Eq. 4: "simply apply the same
  server loss function Eq. 3 to the labeled data at the users" (their
  Appendix H). Both losses see the weak view alike. Labelled images are among
  the unlabelled ones, too, without their labels.

  The authors' code differs from their text: where clients have labels, it does
  self-training (Eq. 5) on the weak and on the strong view, each with its own
  pseudo-labels. Here that is the mean over both views.

  With `unlabelled_loss='uda'`, L_u is UDA's: the Kullback-Leibler divergence
  from the sharpened prediction on the weak view (softmax of logits / T, without
  gradient) to the one on the strong view, where the former's largest
  probability, not sharpened, reaches tau. UDA's authors take T = 0.4 and
  tau = 0.8 on CIFAR-10.

  Needs batches with a second minibatch `labelled`
  (`TrainingPlan.labelled_batch_size`); where it is empty, L_s is 0.

  Attributes:
    views: Gives the weak and the strong view (`tff_ssl.augmentation`).
    threshold: tau, the confidence from which a pseudo-label counts.
    unlabelled_loss: 'crl', 'self_training' on both views, or 'uda'.
    unlabelled_weight: lambda_u >= 0; 1 in Zhang et al.
    views_forward: How the views go through the model; see
      `consistency.forward`.
    temperature: T > 0 of UDA.
    class_weights: Of L_s; as in `tff_ssl.Supervised`.
  """

  views: protocols.Views
  threshold: float = 0.95
  unlabelled_loss: str = 'crl'
  unlabelled_weight: float = 1.0
  views_forward: str = 'auto'
  temperature: float = 0.4
  class_weights: tuple[float, ...] | None = None

  needs_labelled_batch = True
  metric_names = (
    *('loss', 'accuracy'),
    *('unlabelled_loss', 'mask_rate', 'pseudo_label_accuracy'),
  )

  def __post_init__(self):
    THRESHOLD.check(self.threshold)
    UNLABELLED_WEIGHT.check(self.unlabelled_weight)
    TEMPERATURE.check(self.temperature)
    UNLABELLED_LOSS.check(self.unlabelled_loss)
    VIEWS_FORWARD.check(self.views_forward)
    check_class_weights(self.class_weights)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    labelled = batch['labelled']
    inputs = [
      self.views.weak(labelled['x'], randomness.fold_in(seed, 0)),
      self.views.weak(batch['x'], randomness.fold_in(seed, 1)),
      self.views.strong(batch['x'], randomness.fold_in(seed, 2)),
    ]
    seeds = [randomness.fold_in(seed, i) for i in (3, 4, 5)]
    logits, weak_logits, strong_logits = consistency.forward(
      predict,
      inputs,
      seeds,
      self.views_forward,
      # Self-training takes examples of the strong view by that view itself.
      None
      if self.unlabelled_loss == 'self_training'
      else selection.from_threshold(self.threshold),
      first_may_be_empty=True,
    )
    supervised, counts = losses.supervised(
      labelled['y'], logits, self.class_weights
    )
    unlabelled, pseudo = self._unlabelled(weak_logits, strong_logits, batch)
    pseudo['unlabelled_loss'] = pseudo.pop('loss')
    metrics = collections.OrderedDict({**counts, **pseudo})
    return supervised + self.unlabelled_weight * unlabelled, metrics

  def _unlabelled(self, weak_logits, strong_logits, batch):
    """Returns L_u and the metrics of pseudo-labels."""

    def loss(teacher, student):
      return consistency.pseudo_label_loss(
        teacher, student, selection.from_threshold(self.threshold), batch
      )

    if self.unlabelled_loss == 'crl':
      return loss(weak_logits, strong_logits)
    if self.unlabelled_loss == 'uda':
      _, metrics = loss(weak_logits, strong_logits)
      divergences = losses.sharpened_divergence(
        weak_logits, strong_logits, self.threshold, self.temperature
      )
      total, size = tf.reduce_sum(divergences), metrics['loss'][1]
      metrics['loss'] = (total, size)
      return total / tf.maximum(size, 1.0), metrics
    of_weak, weak = loss(weak_logits, weak_logits)
    of_strong, strong = loss(strong_logits, strong_logits)
    counts = tf.nest.map_structure(tf.add, weak, strong)
    return (of_weak + of_strong) / 2, counts
