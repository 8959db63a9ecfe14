"""Objectives of clients without labels: CRL and self-training (Zhang et al.).

Both make a pseudo-label from the weak view alpha(x) of an example and train on
it where the model is confident (tau):

```
CRL, Eq. 4             1/n sum 1[max y_bar >= tau] l(argmax y_bar, f(A(x)))
self-training, Eq. 5   1/n sum 1[max y_bar >= tau] l(argmax y_bar, f(alpha(x)))
```

with y_bar = f(alpha(x)), A the strong view, l the cross-entropy, and n the
whole minibatch (not only the examples that pass). No gradient flows through
y_bar.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, unless

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.models import structures
  from tff_ssl.objectives.maths import losses, selected, selection

THRESHOLD = Setting(
  'threshold',
  float,
  'tau, confidence of pseudo-labels, in [0, 1]; above 1 there are none.',
  at_least=0,
  # A percentage is a mistake; a little above 1 turns pseudo-labels off.
  below=2,
  used_when=(
    unless('pseudo_label_rule', 'self_adaptive', 'finds its own thresholds'),
    unless('pseudo_label_rule', 'gaussian', 'weighs by the mean confidence'),
    unless('experts', 'truth', 'asks no model'),
  ),
)
PSEUDO_LABEL_RULE = Setting(
  'pseudo_label_rule',
  str,
  'Which pseudo-labels count: those from the threshold on (fixed); from the '
  "minibatch's mean confidence on, less for rare classes (self_adaptive, "
  'FreeMatch); or all, the less the further below that mean (gaussian, '
  'SoftMatch).',
  choices=('fixed', 'self_adaptive', 'gaussian'),
)
MIN_CONFIDENCE = Setting(
  'min_confidence',
  float,
  'By an adaptive rule, the confidence below which no example counts, in [0, '
  '1]; 0 in the papers.',
  at_least=0,
  at_most=1,
  used_when=(unless('pseudo_label_rule', 'fixed', 'has `threshold`'),),
)
# What decides which pseudo-labels count.
SELECTION = (THRESHOLD, PSEUDO_LABEL_RULE, MIN_CONFIDENCE)
VIEWS_FORWARD = Setting(
  'views_forward',
  str,
  'Weak and strong view in one forward pass: joint, separate, or auto (joint '
  'with batch normalisation).',
  choices=('auto', 'joint', 'separate'),
  used_when=(unless('teacher', 'received', 'trains on the strong view alone'),),
)
TEACHER = Setting(
  'teacher',
  str,
  'The model that makes pseudo-labels: the one that is trained, or the one '
  'that the client received (it does not change during local training).',
  choices=('trained', 'received'),
)
# From logits `[n, d]` to pseudo-labels `int32 [n]` and weights `float32 [n]`.
Select = Callable[[Any], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class ConsistencyRegularization:
  """CRL, the FixMatch loss on unlabelled examples (Zhang et al., Eq. 4).

  Attributes:
    views: Gives the weak and the strong view (`tff_ssl.augmentation`).
    threshold: tau, the confidence from which a pseudo-label counts.
    views_forward: How the views go through the model; see `forward`. It has no
      effect with the teacher 'received', whose view is not trained on.
    teacher: 'trained': pseudo-labels are those of the model in training, as in
      FixMatch. 'received': those of the global model that the client received
      (with groups, the mean of their models, or its moving average), at
      inference, as in SemiFL (Diao et al., arXiv 2106.01432), so that a client
      cannot confirm its own mistakes within a round.
    pseudo_label_rule: Which pseudo-labels count (`objectives.maths.selection`):
      'fixed', those from the threshold on; 'self_adaptive' or 'gaussian', to
      which the threshold is nothing.
    min_confidence: By the latter two, the confidence below which no
      pseudo-label counts.
  """

  views: protocols.Views
  threshold: float = 0.95
  views_forward: str = 'auto'
  teacher: str = 'trained'
  pseudo_label_rule: str = 'fixed'
  min_confidence: float = 0.0

  metric_names = ('loss', 'mask_rate', 'pseudo_label_accuracy')

  def __post_init__(self):
    THRESHOLD.check(self.threshold)
    VIEWS_FORWARD.check(self.views_forward)
    TEACHER.check(self.teacher)
    PSEUDO_LABEL_RULE.check(self.pseudo_label_rule)
    MIN_CONFIDENCE.check(self.min_confidence)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    weak = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    strong = self.views.strong(batch['x'], randomness.fold_in(seed, 1))
    seeds = [randomness.fold_in(seed, i) for i in (2, 3)]
    if self.teacher == 'received':
      weak_logits = predict.at(anchors, weak)
      _, mask = self.select(weak_logits)
      strong_logits = selected.predict_selected(
        predict, strong, mask, seeds[1], weak_logits
      )
    else:
      weak_logits, strong_logits = forward(
        predict, [weak, strong], seeds, self.views_forward, self.select
      )
    return pseudo_label_loss(weak_logits, strong_logits, self.select, batch)

  def select(self, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns pseudo-labels `int32 [n]` and weights `float32 [n]`.

    Args:
      logits: The teacher's, `float [n, d]`.
    """
    return selection.pseudo_labels(
      logits, self.threshold, self.pseudo_label_rule, self.min_confidence
    )


@dataclasses.dataclass(frozen=True)
class SelfTraining:
  """Self-training, "pseudo-labelling" (Zhang et al., Eq. 5).

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    threshold: tau, the confidence from which a pseudo-label counts.
  """

  views: protocols.Views
  threshold: float = 0.95

  metric_names = ConsistencyRegularization.metric_names

  def __post_init__(self):
    THRESHOLD.check(self.threshold)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    weak = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    logits = predict(weak, training=True, seed=randomness.fold_in(seed, 2))
    return pseudo_label_loss(
      logits, logits, selection.from_threshold(self.threshold), batch
    )


def forward(
  predict,
  batches: list[protocols.Structure],
  seeds: list[tf.Tensor],
  views_forward: str,
  select: Select | None = None,
  first_may_be_empty: bool = False,
) -> list[tf.Tensor]:
  """Returns the train-mode logits of several batches.

  Args:
    predict: A `Predictor`.
    batches: Inputs `[n_i, ...]`, such as the weak and the strong view.
    seeds: A seed for each batch; the first one serves a joint forward pass.
    views_forward: 'joint': one pass over all batches together, as in the code
      of the grouping paper's authors. Batch normalisation needs it: it must see
      the views as one batch. 'separate': a pass for each batch, without batch
      normalisation only. It is the same but for dropout, and faster where no
      gradient flows through a batch. 'auto': joint where the model has moving
      statistics.
    select: From logits to pseudo-labels and their weights, where the last batch
      is another view of the one before, and the loss takes only those of its
      examples whose weight there is above 0. In separate passes only they go
      through the model then; see `selected.predict_selected`. Without it, all
      examples do.
    first_may_be_empty: Whether the first batch may have no examples, where
      others have some.

  Returns:
    Logits `[n_i, d]` of each batch; 0 for examples that did not go through.

  Raises:
    ValueError: If the views of a model with batch normalisation are to go
      through it separately.
  """
  if views_forward == 'separate' and predict.has_moving_state:
    raise ValueError(
      "views_forward='separate' does not fit a model with batch normalisation, "
      'whose statistics must be those of all views together (and a minibatch '
      "may have nothing to normalise in one of them): use 'auto' or 'joint'."
    )
  is_joint = views_forward == 'joint' or (
    views_forward == 'auto' and predict.has_moving_state
  )
  if is_joint:
    logits = predict(structures.concat(batches), training=True, seed=seeds[0])
    losses.check_logits(logits)
    return tf.split(logits, [structures.size(batch) for batch in batches])
  *earlier, (last, last_seed) = zip(batches, seeds, strict=True)
  outputs = []
  if first_may_be_empty:
    first, first_seed = earlier.pop(0)
    outputs.append(predict.of_any_number(first, last, first_seed))
  outputs += [
    predict(batch, training=True, seed=seed) for batch, seed in earlier
  ]
  if select is None:
    return [*outputs, predict(last, training=True, seed=last_seed)]
  _, mask = select(outputs[-1])
  return [
    *outputs,
    selected.predict_selected(predict, last, mask, last_seed, outputs[-1]),
  ]


def pseudo_label_loss(teacher_logits, student_logits, select: Select, batch):
  """Returns Eq. 4's loss for given logits, and the metrics of pseudo-labels.

  Where pseudo-labels have weights between 0 and 1, `mask_rate` is the mean
  weight, and `pseudo_label_accuracy` counts by weight.

  Args:
    teacher_logits: `float [n, d]`.
    student_logits: `float [n, d]`.
    select: From the teacher's logits to labels and weights.
    batch: The minibatch.
  """
  labels, mask = select(teacher_logits)
  total = tf.reduce_sum(
    losses.masked_cross_entropy(labels, student_logits, mask)
  )
  size = tf.cast(tf.shape(mask)[0], tf.float32)
  metrics = collections.OrderedDict(
    loss=(total, size),
    mask_rate=(tf.reduce_sum(mask), size),
    pseudo_label_accuracy=losses.pseudo_label_accuracy(labels, mask, batch),
  )
  return total / tf.maximum(size, 1.0), metrics
