"""Objectives with a proxy task, alone or beside the classifier (SSPT, SSJO).

Hegde et al., "Label Hungry? Not Anymore: Towards Federated Semi-supervised
Learning", Figures 3 and 4.
"""

from __future__ import annotations

import collections
import dataclasses

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting
from tff_ssl.objectives.supervised import check_class_weights

with epy.lazy_imports():
  import tensorflow as tf

  from tff_ssl import randomness
  from tff_ssl.objectives import proxy_tasks
  from tff_ssl.objectives.maths import losses

SSJO_LOSS_WEIGHT = Setting(
  'ssjo_loss_weight',
  float,
  "Weight of the proxy task's loss beside the classifier's.",
  at_least=0,
)


@dataclasses.dataclass(frozen=True)
class SelfSupervised:
  """The mean loss of the proxy task (Figure 3, left).

  For models whose only head is the task's; labels are not read.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    task: The `tff_ssl.objectives.proxy_tasks.ProxyTask`.
  """

  views: protocols.Views
  task: proxy_tasks.ProxyTask

  metric_names = ('proxy_loss',)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    x = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    inputs, targets = self.task.make(x, randomness.fold_in(seed, 1))
    outputs = predict(inputs, seed=randomness.fold_in(seed, 2))
    return _proxy_loss(self.task, outputs, targets)


@dataclasses.dataclass(frozen=True)
class JointlyOptimized:
  """Cross-entropy of what has a label, and the proxy task on all (Figure 4).

  ```
  L = L_s(labelled examples) + weight * L_proxy(all examples)
  ```

  For models with two outputs, the classifier's and the task's. Each loss is a
  mean; L_s is 0 in a minibatch without labels, so that gradients come from the
  task's head alone there. The paper leaves the weight open.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
    task: The `tff_ssl.objectives.proxy_tasks.ProxyTask`.
    weight: Of the task's loss, >= 0.
    class_weights: Of L_s; as in `tff_ssl.Supervised`.
  """

  views: protocols.Views
  task: proxy_tasks.ProxyTask
  weight: float = 1.0
  class_weights: tuple[float, ...] | None = None

  metric_names = ('loss', 'accuracy', 'proxy_loss')

  def __post_init__(self):
    SSJO_LOSS_WEIGHT.check(self.weight)
    check_class_weights(self.class_weights)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    x = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    inputs, targets = self.task.make(x, randomness.fold_in(seed, 1))
    logits, outputs = predict(x, seed=randomness.fold_in(seed, 2))
    if inputs is not x:
      _, outputs = predict(inputs, seed=randomness.fold_in(seed, 3))
    supervised, metrics = losses.supervised(
      batch['y'], logits, self.class_weights
    )
    proxy, proxy_metrics = _proxy_loss(self.task, outputs, targets)
    return supervised + self.weight * proxy, collections.OrderedDict(
      {**metrics, **proxy_metrics}
    )


def _proxy_loss(task, outputs, targets):
  each = task.losses(tf.cast(outputs, tf.float32), targets)
  total, count = tf.reduce_sum(each), tf.cast(tf.size(each), tf.float32)
  metrics = collections.OrderedDict(proxy_loss=(total, count))
  return total / tf.maximum(count, 1.0), metrics
