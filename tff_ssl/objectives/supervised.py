"""Cross-entropy with true labels (paper 1, Eqs. 3 and 6)."""

import dataclasses
from typing import Any

from tff_ssl import randomness
from tff_ssl.objectives import losses


@dataclasses.dataclass(frozen=True)
class Supervised:
  """Mean cross-entropy on the weak view of the labelled examples of a batch.

  The mean runs over the examples that have a label; a batch without any has
  loss and gradient zero.

  Attributes:
    views: Gives the weak view (`tff_ssl.augmentation`).
  """

  views: Any

  metric_names = ('loss', 'accuracy')

  def __call__(self, predict, batch, anchors, seed):
    """Returns the loss and, per metric, numerator and denominator."""
    del anchors
    x = self.views.weak(batch['x'], randomness.fold_in(seed, 0))
    logits = predict(x, training=True, seed=randomness.fold_in(seed, 1))
    return losses.supervised(batch['y'], logits)
