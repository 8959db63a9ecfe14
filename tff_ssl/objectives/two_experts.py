"""FedLabel's objective on unlabelled examples: the surer of two experts.

Cho et al., Local or Global: Selective Knowledge Assimilation for Federated
Learning with Limited Labels (arXiv 2307.08809), Section 4.1. On each unlabelled
example x, the global model and the client's local one give probabilities; s* is
the more confident one, s- the other,

```math
s^*(x) = argmax of h(s) over both experts                            (Eq. 3)
y_hat(x) = argmax s^*(x), where max s^*(x) > beta                    (Eq. 4)
loss(x) = CE(f(psi(x)), y_hat)
 + lambda(x) KL(f(x), s^-(x)) 1[argmax s^- = y_hat]
lambda(x) = lambda_0 h(s^-) / h(s^*)                         (Eqs. 5 to 8)
```

with psi the strong view; an example without a pseudo-label adds nothing.

`experts='truth'` puts the true labels in the place of y_hat, of all examples
and without the term of consistency: a reference that has perfect labels. It is
ours, and needs a simulation.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import NamedTuple

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, only_with, unless
from tff_ssl.objectives.selection import THRESHOLD
from tff_ssl.objectives.supervised import Checked

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import randomness
  from tff_ssl.objectives import losses, selection

TRUTH = 'truth'
_BOTH = only_with('experts', 'both')
_PREDICTED = unless('experts', TRUTH, 'asks no model')
_WEIGHED = unless('consistency_weight', 0, 'leaves it out')
_SETTINGS = (
  Setting(
    'consistency_weight',
    float,
    'lambda_0, weight of the global-local consistency.',
    at_least=0,
    used_when=(_BOTH,),
  ),
  Setting(
    'confidence',
    str,
    'h, by which an expert is chosen: variance or entropy.',
    choices=('variance', 'entropy'),
    used_when=(_BOTH,),
  ),
  Setting(
    'experts',
    str,
    'Who gives the pseudo-labels: both models, the global or the local one; or '
    'the truth, as a reference, where a simulation hides the labels.',
    choices=('both', 'global', 'local', TRUTH),
  ),
  Setting(
    'expert_view',
    str,
    'The view that the experts see: plain or strong.',
    choices=('plain', 'strong'),
    used_when=(_PREDICTED,),
    needed_by='FedLabel, Appendix A',
  ),
  Setting(
    'consistency_view',
    str,
    'The view of the consistency term: plain or strong.',
    choices=('plain', 'strong'),
    used_when=(_BOTH, _WEIGHED),
    needed_by='clients that save the pass of the plain view',
  ),
)

_EPSILON = 1e-12


class Experts(NamedTuple):
  """The anchors of `TwoExperts`, `local_model` being the client's own."""

  global_model: tff.learning.models.ModelWeights
  local_model: tff.learning.models.ModelWeights


@dataclasses.dataclass(frozen=True)
class TwoExperts(Checked):
  """The loss of FedLabel, as the mean over a minibatch (Eq. 8).

  It is the mean over all unlabelled examples, so that a step is small where few
  pass the threshold, as in FixMatch. Those that fail it do not go through the
  model that is trained, unless batch normalisation needs them. The anchors are
  `Experts`.

  Attributes:
    views: Gives the plain, the weak and the strong view
      (`tff_ssl.augmentation`).
    threshold: beta in [0, 1]; the paper finds 0.3 to 0.5 best (Figure 10).
    consistency_weight: lambda_0 >= 0.
    confidence: h: 'variance' over the classes, or 'entropy', the negative one
      (Appendix A), shifted by the entropy of the uniform distribution, so that
      it is nonnegative and Eq. 7's ratio keeps its meaning.
    experts: 'both', or one alone, 'global' or 'local' (Figure 2), which leaves
      no s- to be consistent with. Or 'truth': each example has its true label
      (`true_y`, which a simulation hides), whatever the threshold.
    expert_view: The view that the experts see: 'plain' (x in Eq. 3), or
      'strong', of which Appendix A speaks.
    consistency_view: The view on which the model is compared with s-: 'plain'
      (x in Eq. 6), or 'strong', which saves a forward pass.
  """

  views: protocols.Views
  threshold: float = 0.5
  consistency_weight: float = 1.0
  confidence: str = 'variance'
  experts: str = 'both'
  expert_view: str = 'plain'
  consistency_view: str = 'plain'

  metric_names = (
    *('unlabelled_loss', 'mask_rate', 'pseudo_label_accuracy'),
    *('local_expert_rate', 'agreement_rate'),
  )
  settings = (THRESHOLD, *_SETTINGS)

  def __call__(self, predict, batch, anchors, seed):
    if self.experts == TRUTH:
      return self._with_true_labels(predict, batch, seed)
    strong = self.views.strong(batch['x'], randomness.fold_in(seed, 0))
    plain = self.views.plain(batch['x'])
    seen = strong if self.expert_view == 'strong' else plain
    expert_logits = [predict.at(weights, seen) for weights in anchors]
    of_global, of_local = (
      tf.nn.softmax(tf.cast(logits, tf.float32)) for logits in expert_logits
    )
    chosen, other, is_local = self._select(of_global, of_local)
    labels = tf.argmax(chosen, axis=-1, output_type=tf.int32)
    mask = tf.cast(tf.reduce_max(chosen, axis=-1) > self.threshold, tf.float32)
    others = tf.argmax(other, axis=-1, output_type=tf.int32)
    agrees = mask * tf.cast(tf.equal(labels, others), tf.float32)
    logits = selection.predict_selected(
      predict, strong, mask, randomness.fold_in(seed, 2), like=expert_logits[0]
    )
    each = losses.masked_cross_entropy(labels, logits, mask)
    if self.consistency_weight and self.experts == 'both':
      if self.consistency_view == 'plain':
        logits = selection.predict_selected(
          predict,
          plain,
          agrees,
          randomness.fold_in(seed, 3),
          like=expert_logits[0],
        )
      # At most 1; 0 where no expert is confident.
      ratio = tf.math.divide_no_nan(self._h(other), self._h(chosen))
      weight = self.consistency_weight * ratio
      expert = tf.math.log(tf.maximum(other, _EPSILON))
      each += agrees * weight * losses.divergence(logits, expert)
    return self._mean(each, labels, mask, batch, mask * is_local, agrees)

  def _with_true_labels(self, predict, batch, seed):
    """Returns loss and metrics where y_hat is the truth; no expert is asked."""
    if 'true_y' not in batch:
      raise ValueError(
        f'experts={TRUTH!r} trains on the labels that a simulation hides, and '
        'these data have no true_y: take both, global or local.'
      )
    labels = batch['true_y']
    mask = tf.cast(labels >= 0, tf.float32)
    strong = self.views.strong(batch['x'], randomness.fold_in(seed, 0))
    logits = predict(strong, seed=randomness.fold_in(seed, 2))
    each = losses.masked_cross_entropy(labels, logits, mask)
    nobody = tf.zeros_like(mask)
    return self._mean(each, labels, mask, batch, nobody, nobody)

  def _mean(self, each, labels, mask, batch, is_local, agrees):
    """Returns the mean of the examples' losses, and the metrics."""
    total, size = tf.reduce_sum(each), tf.cast(tf.size(each), tf.float32)
    passed = tf.reduce_sum(mask)
    return total / tf.maximum(size, 1.0), collections.OrderedDict(
      unlabelled_loss=(total, size),
      mask_rate=(passed, size),
      pseudo_label_accuracy=losses.pseudo_label_accuracy(labels, mask, batch),
      local_expert_rate=(tf.reduce_sum(is_local), passed),
      agreement_rate=(tf.reduce_sum(agrees), passed),
    )

  def _select(self, of_global, of_local):
    """Returns s*, s- and 1 where s* is the local model's (Eq. 3)."""
    if self.experts == 'both':
      prefers_local = self._h(of_local) > self._h(of_global)
    else:
      prefers_local = tf.fill([tf.shape(of_local)[0]], self.experts == 'local')
    chosen = tf.where(prefers_local[:, tf.newaxis], of_local, of_global)
    other = tf.where(prefers_local[:, tf.newaxis], of_global, of_local)
    return chosen, other, tf.cast(prefers_local, tf.float32)

  def _h(self, probabilities):
    """Returns the confidence of each row."""
    if self.confidence == 'variance':
      return tf.math.reduce_variance(probabilities, axis=-1)
    num_classes = tf.cast(tf.shape(probabilities)[-1], tf.float32)
    negative = tf.reduce_sum(
      tf.math.xlogy(probabilities, probabilities), axis=-1
    )
    return tf.maximum(negative + tf.math.log(num_classes), 0.0)
