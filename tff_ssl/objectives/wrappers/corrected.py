"""A constant correction of the gradient, added to any objective."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from etils import epy

from tff_ssl import protocols
from tff_ssl.objectives.wrappers import wrapper

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff


class Correction(NamedTuple):
  """What `Corrected` takes for anchors.

  Attributes:
    start: The anchors of the objective itself.
    gradient: Tensors in the structure of the trainable weights.
  """

  start: tff.learning.models.ModelWeights
  gradient: protocols.Structure


@dataclasses.dataclass(frozen=True)
class Corrected(wrapper.Wrapper):
  """`objective + <correction, w>` over the trainable weights.

  The gradient is that of the objective plus the correction, in every step and
  for any objective and optimizer: the control variates of SCAFFOLD (Karimireddy
  et al., arXiv 1910.06378, Algorithm 1), whose correction is c - c_i. Its
  anchors are a `Correction`.

  Attributes:
    objective: The objective that the term is added to.
  """

  objective: protocols.Objective

  def __call__(self, predict, batch, anchors, seed):
    """Returns the objective's loss with the term, and its metrics."""
    loss, metrics = self.objective(predict, batch, anchors.start, seed)
    term = tf.add_n(
      [
        tf.reduce_sum(correction * weight)
        for correction, weight in zip(
          tf.nest.flatten(anchors.gradient),
          tf.nest.flatten(predict.trainable),
          strict=True,
        )
      ]
    )
    return loss + term, metrics
