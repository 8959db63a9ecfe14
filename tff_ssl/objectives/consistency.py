"""Objectives that learn from pseudo-labels: CRL, self-training, FixMatch, UDA.

Zhang et al. (arXiv 2008.11364) make a pseudo-label from the weak view alpha(x)
of an example and train on it where the model is confident (tau):

```math
CRL            1/n sum 1[max y_bar >= tau] l(argmax y_bar, f(A(x)))      (Eq. 4)
self-training  1/n sum 1[max y_bar >= tau] l(argmax y_bar, f(alpha(x)))  (Eq. 5)
```

with y_bar = f(alpha(x)), A the strong view, l the cross-entropy, and n the
whole minibatch (not only the examples that pass). No gradient flows through
y_bar. With a labelled minibatch beside it, CRL is the FixMatch loss (their
Appendix H); UDA is that of Xie et al., arXiv 1904.12848.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting, unless
from tff_ssl.objectives.selection import SELECTION, THRESHOLD
from tff_ssl.objectives.sharpness import SHARPNESS_RADIUS, SHARPNESS_THRESHOLD
from tff_ssl.objectives.supervised import CLASS_WEIGHTS, Checked

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.models import structures
  from tff_ssl.objectives import losses, selection, sharpness

VIEWS_FORWARD = Setting(
  'views_forward',
  str,
  'Weak and strong view in one forward pass: joint, or auto (only with batch '
  'normalisation).',
  choices=('auto', 'joint'),
  used_when=(unless('teacher', 'received', 'trains on the strong view alone'),),
  needed_by='the code of Zhang et al., which has both views in one pass',
)
TEACHER = Setting(
  'teacher',
  str,
  'The model that makes pseudo-labels: the one that is trained, or the one '
  'that the client received (it does not change during local training).',
  choices=('trained', 'received'),
)
UNLABELLED_LOSS = Setting(
  'unlabelled_loss',
  str,
  'Loss on unlabelled examples: crl; self_training on both views; uda; '
  'received, crl with labels of the model that the client received; or sage, '
  'with labels of both.',
  choices=('crl', 'self_training', 'uda', 'received', 'sage'),
  needed_by='UDA under FedAvg and FedProx, SAGE and its baseline',
)
UNLABELLED_WEIGHT = Setting(
  'unlabelled_weight',
  float,
  "Weight of the unlabelled examples' loss.",
  at_least=0,
)
TEMPERATURE = Setting('temperature', float, 'T of UDA, above 0.', above=0)
_METRICS = ('loss', 'mask_rate', 'pseudo_label_accuracy')
# The difference of confidences at which SAGE's trained model has half of the
# say.
_HALVED_AT = 0.05
# From logits `[n, d]` to pseudo-labels `int32 [n]` and weights `float32 [n]`.
Select = Callable[[Any], tuple[Any, Any]]


class Selecting(Checked):
  """An objective with the fields of `SELECTION`, which select pseudo-labels."""

  threshold: float
  pseudo_label_rule: str
  min_confidence: float
  max_energy: float

  def select(
    self, logits: tf.Tensor, thresholds: tf.Tensor | None = None
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns pseudo-labels and weights (`selection.pseudo_labels`)."""
    return selection.pseudo_labels(
      logits,
      self.threshold,
      self.pseudo_label_rule,
      self.min_confidence,
      thresholds,
      self.max_energy,
    )


@dataclasses.dataclass(frozen=True)
class ConsistencyRegularization(Selecting):
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
    pseudo_label_rule: Which pseudo-labels count: 'fixed', those from the
      threshold on; 'self_adaptive', 'client_adaptive' (of a received teacher),
      'gaussian' or 'energy', to which the threshold is nothing
      (`tff_ssl.objectives.selection`).
    min_confidence: By the latter four, the confidence below which no
      pseudo-label counts.
    sharpness_radius: rho of `tff_ssl.SharpnessAwareConsistency`, whose second
      loss comes beside this one where rho is above 0 (of a received teacher).
      S are the examples whose pseudo-label counts, n the whole minibatch.
    sharpness_threshold: Its c.
    max_energy: By 'energy', the energy above which no pseudo-label counts.
  """

  views: protocols.Views
  threshold: float = 0.95
  views_forward: str = 'auto'
  teacher: str = 'trained'
  pseudo_label_rule: str = 'fixed'
  min_confidence: float = 0.0
  sharpness_radius: float = 0.0
  sharpness_threshold: float = 0.95
  max_energy: float = -5.0

  settings = (
    *(*SELECTION, VIEWS_FORWARD, TEACHER),
    *(SHARPNESS_RADIUS, SHARPNESS_THRESHOLD),
  )

  def __post_init__(self):
    super().__post_init__()
    needs_received = {
      'pseudo_label_rule': self.pseudo_label_rule == 'client_adaptive',
      'sharpness_radius': self.sharpness_radius > 0,
    }
    for name, is_needed in needs_received.items():
      if is_needed and self.teacher != 'received':
        raise ValueError(
          f'{name}={getattr(self, name)} needs the labels of a model that does '
          f'not change meanwhile, but teacher is {self.teacher!r}: use '
          "teacher='received'."
        )

  @property
  def metric_names(self) -> tuple[str, ...]:
    """With `sharpness`, the mean divergence over S, where it is computed."""
    return (*_METRICS, 'sharpness') if self.sharpness_radius else _METRICS

  def survey(self, probabilities, examples, seed):
    """Returns the `class_thresholds` of all examples, if the rule has such."""
    if self.pseudo_label_rule != 'client_adaptive':
      return collections.OrderedDict()
    found = probabilities(self.views.weak(examples['x'], seed))
    return collections.OrderedDict(
      class_thresholds=selection.class_thresholds(found)
    )

  def __call__(self, predict, batch, anchors, seed):
    weak = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    strong = self.views.strong(batch['x'], randomness.fold_in(seed, 1))
    seeds = [randomness.fold_in(seed, i) for i in (2, 3)]
    if self.teacher == 'trained':
      weak_logits, strong_logits = forward(
        predict, [weak, strong], seeds, self.views_forward, self.select
      )
      return pseudo_label_loss(weak_logits, strong_logits, self.select, batch)
    weak_logits = predict.at(anchors, weak)
    select = functools.partial(
      self.select, thresholds=batch.get('class_thresholds')
    )
    labels, mask = select(weak_logits)
    sure = selection.confidence_of(weak_logits) >= self.sharpness_threshold
    strong_logits, difference = sharpness.compared(
      predict,
      lambda: selection.predict_selected(
        predict, strong, mask, seeds[1], weak_logits
      ),
      strong,
      labels,
      mask,
      tf.cast(sure, tf.float32),
      self.sharpness_radius,
      seeds[1],
    )
    loss, metrics = pseudo_label_loss(weak_logits, strong_logits, select, batch)
    if self.sharpness_radius:
      loss += difference[0] / tf.maximum(metrics['loss'][1], 1.0)
      metrics['sharpness'] = difference
    return loss, metrics


@dataclasses.dataclass(frozen=True)
class SelfTraining(Checked):
  """Self-training, "pseudo-labelling" (Zhang et al., Eq. 5).

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    threshold: tau, the confidence from which a pseudo-label counts.
  """

  views: protocols.Views
  threshold: float = 0.95

  metric_names = _METRICS
  settings = (THRESHOLD,)

  def __call__(self, predict, batch, anchors, seed):
    del anchors
    weak = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    logits = predict(weak, training=True, seed=randomness.fold_in(seed, 2))
    return pseudo_label_loss(logits, logits, passing(self.threshold), batch)


@dataclasses.dataclass(frozen=True)
class SemiSupervised(Checked):
  """Cross-entropy on labelled examples plus CRL on all: the FixMatch loss.

  ```math
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

  With 'received', L_u is CRL's with the pseudo-labels of the model that the
  client received, at inference, on the same weak view; with 'sage', that of
  `corrected_labels`, from both models.

  Needs batches with a second minibatch `labelled`
  (`TrainingPlan.labelled_batch_size`); where it is empty, L_s is 0.

  Attributes:
    views: Gives the weak and the strong view (`tff_ssl.augmentation`).
    threshold: tau, the confidence from which a pseudo-label counts.
    unlabelled_loss: 'crl', 'self_training' on both views, 'uda', 'received' or
      'sage'.
    unlabelled_weight: lambda_u >= 0; 1 in Zhang et al.
    views_forward: How the views go through the model; see `forward`.
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
  settings = (
    *(THRESHOLD, VIEWS_FORWARD),
    *(UNLABELLED_LOSS, UNLABELLED_WEIGHT, CLASS_WEIGHTS, TEMPERATURE),
  )

  def __call__(self, predict, batch, anchors, seed):
    labelled = batch['labelled']
    inputs = [
      self.views.weak(labelled['x'], randomness.fold_in(seed, 0)),
      self.views.weak(batch['x'], randomness.fold_in(seed, 1)),
      self.views.strong(batch['x'], randomness.fold_in(seed, 2)),
    ]
    seeds = [randomness.fold_in(seed, i) for i in (3, 4, 5)]
    received, select = None, passing(self.threshold)
    if self.unlabelled_loss in ('received', 'sage'):
      received = predict.at(anchors, inputs[1])
    if self.unlabelled_loss == 'self_training':
      # It takes examples of the strong view by that view itself.
      select = None
    elif self.unlabelled_loss == 'received':
      # Nothing is asked of the weak view by the model in training.
      del inputs[1], seeds[1]
    elif self.unlabelled_loss == 'sage':
      select = functools.partial(
        corrected_labels, received_logits=received, threshold=self.threshold
      )
    *earlier, strong_logits = forward(
      predict,
      inputs,
      seeds,
      self.views_forward,
      select,
      first_may_be_empty=True,
      teacher_logits=received if self.unlabelled_loss == 'received' else None,
    )
    logits, weak_logits = (*earlier, received)[:2]
    supervised, counts = losses.supervised(
      labelled['y'], logits, self.class_weights
    )
    unlabelled, pseudo = self._unlabelled(
      weak_logits, strong_logits, batch, received
    )
    pseudo['unlabelled_loss'] = pseudo.pop('loss')
    metrics = collections.OrderedDict({**counts, **pseudo})
    return supervised + self.unlabelled_weight * unlabelled, metrics

  def _unlabelled(self, weak_logits, strong_logits, batch, received):
    """Returns L_u and the metrics of pseudo-labels."""

    def loss(teacher, student):
      return pseudo_label_loss(teacher, student, passing(self.threshold), batch)

    if self.unlabelled_loss in ('crl', 'received'):
      return loss(weak_logits, strong_logits)
    if self.unlabelled_loss == 'sage':
      targets, mask = corrected_labels(weak_logits, received, self.threshold)
      entropy = -tf.reduce_sum(tf.math.xlogy(targets, targets), axis=-1)
      each = mask * (
        tf.nn.softmax_cross_entropy_with_logits(
          targets, tf.cast(strong_logits, tf.float32)
        )
        - entropy
      )
      return mean_loss(
        each, tf.argmax(targets, -1, output_type=tf.int32), mask, batch
      )
    if self.unlabelled_loss == 'uda':
      _, metrics = loss(weak_logits, strong_logits)
      divergences = sharpened_divergence(
        weak_logits, strong_logits, self.threshold, self.temperature
      )
      total, size = tf.reduce_sum(divergences), metrics['loss'][1]
      metrics['loss'] = (total, size)
      return total / tf.maximum(size, 1.0), metrics
    of_weak, weak = loss(weak_logits, weak_logits)
    of_strong, strong = loss(strong_logits, strong_logits)
    counts = tf.nest.map_structure(tf.add, weak, strong)
    return (of_weak + of_strong) / 2, counts


def passing(threshold: float) -> Select:
  """Returns the selection of those pseudo-labels that pass a threshold."""
  return functools.partial(selection.pseudo_labels, threshold=threshold)


def forward(
  predict,
  batches: list[protocols.Structure],
  seeds: list[tf.Tensor],
  views_forward: str,
  select: Select | None = None,
  first_may_be_empty: bool = False,
  teacher_logits: tf.Tensor | None = None,
) -> list[tf.Tensor]:
  """Returns the train-mode logits of several batches.

  Args:
    predict: A `Predictor`.
    batches: Inputs `[n_i, ...]`, such as the weak and the strong view.
    seeds: A seed for each batch; the first one serves a joint forward pass.
    views_forward: 'joint': one pass over all batches together, as in the code
      of the grouping paper's authors. 'auto': joint where the model has moving
      statistics, which must be those of all views; else a pass for each batch,
      the same but for dropout, and faster where no gradient flows through one.
    select: From logits to pseudo-labels and their weights, where the last batch
      is another view of the one before, and the loss takes only those of its
      examples whose weight there is above 0. In separate passes only they go
      through the model then (`selection.predict_selected`).
    first_may_be_empty: Whether the first batch may have no examples, where
      others have some.
    teacher_logits: What `select` takes where another model has seen the view
      before the last one, which is not among the batches then.

  Returns:
    Logits `[n_i, d]` of each batch; 0 for examples that did not go through.
  """
  if views_forward == 'joint' or predict.has_moving_state:
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
  teacher = outputs[-1] if teacher_logits is None else teacher_logits
  _, mask = select(teacher)
  return [
    *outputs,
    selection.predict_selected(predict, last, mask, last_seed, teacher),
  ]


def pseudo_label_loss(teacher_logits, student_logits, select: Select, batch):
  """Returns Eq. 4's loss for given logits, and the metrics of pseudo-labels.

  `select` takes the teacher's logits. Where pseudo-labels have weights between
  0 and 1, `mask_rate` is the mean weight, and `pseudo_label_accuracy` counts by
  weight.
  """
  labels, mask = select(teacher_logits)
  each = losses.masked_cross_entropy(labels, student_logits, mask)
  return mean_loss(each, labels, mask, batch)


def mean_loss(each, labels, mask, batch):
  """Returns the mean loss, and the metrics of pseudo-labels `int32 [n]`."""
  total = tf.reduce_sum(each)
  size = tf.cast(tf.shape(mask)[0], tf.float32)
  metrics = collections.OrderedDict(
    loss=(total, size),
    mask_rate=(tf.reduce_sum(mask), size),
    pseudo_label_accuracy=losses.pseudo_label_accuracy(labels, mask, batch),
  )
  return total / tf.maximum(size, 1.0), metrics


def corrected_labels(
  local_logits: tf.Tensor, received_logits: tf.Tensor, threshold: float
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns SAGE's soft labels (Liu et al., CVPR 2025, arXiv 2503.13227).

  With p the model in training, q the one that the client received, both on the
  weak view, l and g their most probable classes:

  ```
  lambda = 2^(-|max p - max q| / .05)   where max p >= tau, else 0
  label  = lambda onehot(l) + (1 - lambda) onehot(g)
  ```

  So the received model has the more to say, the more the two differ in how sure
  they are: a model that fits few labels becomes too sure of itself.

  Args:
    local_logits: Of p, `float [n, d]`.
    received_logits: Of q, likewise.
    threshold: tau.

  Returns:
    Labels `float32 [n, d]`, and `float32 [n]`, 1 where either of the two
    reaches tau. No gradient flows through.
  """
  (local, is_sure), (received, received_is_sure) = (
    selection.pseudo_labels(logits, threshold)
    for logits in (local_logits, received_logits)
  )
  of_local, of_received = map(
    selection.confidence_of, (local_logits, received_logits)
  )
  share = is_sure * 2.0 ** (-tf.abs(of_local - of_received) / _HALVED_AT)
  classes = local_logits.shape[-1]
  share = share[:, tf.newaxis]
  labels = share * tf.one_hot(local, classes) + (1.0 - share) * tf.one_hot(
    received, classes
  )
  return labels, tf.maximum(is_sure, received_is_sure)


def sharpened_divergence(
  teacher_logits: tf.Tensor,
  student_logits: tf.Tensor,
  threshold: float,
  temperature: float,
) -> tf.Tensor:
  """Returns UDA's loss of each example (arXiv 1904.12848, Eq. 1, Section 3.2).

  The divergence from the teacher, whose logits are divided by the temperature,
  to the student, in nats. It is 0 where the teacher's largest probability, not
  sharpened, is below the threshold; no gradient flows through the teacher.
  """
  _, mask = selection.pseudo_labels(teacher_logits, threshold)
  teacher = tf.cast(tf.stop_gradient(teacher_logits), tf.float32) / temperature
  return mask * losses.divergence(teacher, student_logits)
