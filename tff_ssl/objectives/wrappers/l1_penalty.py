"""An L1 penalty on the weights, added to any objective."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting
from tff_ssl.objectives.wrappers import wrapper

with epy.lazy_imports():
  import tensorflow as tf

L1_WEIGHT = Setting(
  'l1_weight',
  float,
  "Weight of an L1 penalty on all weights; FedMatch's is on psi.",
  at_least=0,
)


@dataclasses.dataclass(frozen=True)
class L1Penalty(wrapper.Wrapper):
  """`objective + lambda ||w||_1` over all trainable weights.

  Source: Lu et al., Federated Learning from Only Unlabeled Data with
  Class-Conditional-Sharing Clients (arXiv 2204.03304), Table D.4; its authors'
  code takes all parameters, those of normalisation and the biases as well.

  Attributes:
    objective: The objective that the penalty is added to. Its metrics stay
      without it.
    l1_weight: lambda >= 0.
  """

  objective: protocols.Objective
  l1_weight: float

  def __post_init__(self):
    L1_WEIGHT.check(self.l1_weight)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the objective's loss with the penalty, and its metrics."""
    loss, metrics = self.objective(predict, batch, anchors, seed)
    norm = tf.add_n(
      [
        tf.cast(tf.reduce_sum(tf.abs(weight)), loss.dtype)
        for weight in predict.trainable
      ]
    )
    return loss + self.l1_weight * norm, metrics
