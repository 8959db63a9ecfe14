"""An objective times a constant."""

from __future__ import annotations

import dataclasses

from tff_ssl import protocols
from tff_ssl.common.setting import Setting
from tff_ssl.objectives.wrappers import wrapper

SUPERVISED_WEIGHT = Setting(
  'supervised_weight',
  float,
  "lambda_s of FedMatch, weight of the labelled examples' loss.",
  at_least=0,
)


@dataclasses.dataclass(frozen=True)
class WeightedLoss(wrapper.Wrapper):
  """`weight * objective`; metrics stay those of the objective.

  Attributes:
    objective: The objective.
    weight: A number >= 0; `supervised_weight` of FedMatch.
  """

  objective: protocols.Objective
  weight: float

  def __post_init__(self):
    SUPERVISED_WEIGHT.check(self.weight)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the weighted loss, and the objective's metrics."""
    loss, metrics = self.objective(predict, batch, anchors, seed)
    return self.weight * loss, metrics
