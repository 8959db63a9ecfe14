"""An L1 penalty on the weights, added to any objective."""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_ssl import checks
from tff_ssl.objectives import wrapper


@dataclasses.dataclass(frozen=True)
class Lasso(wrapper.Wrapper):
  """`objective + lambda ||w||_1` over all trainable weights.

  Source: Lu et al., Federated Learning from Only Unlabeled Data with
  Class-Conditional-Sharing Clients (arXiv 2204.03304), Table D.4; its authors'
  code takes all parameters, those of normalisation and the biases as well.

  Attributes:
    objective: The objective that the penalty is added to. Its metrics stay
      without it.
    l1_weight: lambda >= 0.
  """

  objective: Any
  l1_weight: float

  def __post_init__(self):
    checks.numbers_at_least(0, l1_weight=self.l1_weight)

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
