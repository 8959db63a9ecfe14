"""FedProx's proximal term, added to any objective."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_ssl import protocols
from tff_ssl.common.setting import Setting
from tff_ssl.objectives.wrappers import wrapper

with epy.lazy_imports():
  import tensorflow as tf

PROXIMAL_STRENGTH = Setting(
  'proximal_strength',
  float,
  'mu of FedProx, weight of the proximal term; also in FedNova.',
  at_least=0,
)


@dataclasses.dataclass(frozen=True)
class Proximal(wrapper.Wrapper):
  """`objective + mu/2 ||w - w_start||^2` over the trainable weights.

  Source: Li et al., Federated Optimization in Heterogeneous Networks
  (arXiv 1812.06127), Eq. 2.

  Attributes:
    objective: The objective that the term is added to.
    strength: mu >= 0.
  """

  objective: protocols.Objective
  strength: float

  def __post_init__(self):
    PROXIMAL_STRENGTH.check(self.strength)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the objective's loss with the term, and its metrics."""
    loss, metrics = self.objective(predict, batch, anchors, seed)
    distance = tf.add_n(
      [
        tf.reduce_sum(tf.square(weight - anchor))
        for weight, anchor in zip(
          predict.trainable, anchors.trainable, strict=True
        )
      ]
    )
    return loss + 0.5 * self.strength * distance, metrics
