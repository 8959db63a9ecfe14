"""An objective times a constant."""

import dataclasses
from typing import Any

from tff_ssl import checks
from tff_ssl.objectives import wrapper


@dataclasses.dataclass(frozen=True)
class Weighted(wrapper.Wrapper):
  """`weight * objective`; metrics stay those of the objective.

  Attributes:
    objective: The objective.
    weight: A number >= 0; `supervised_weight` of FedMatch.
  """

  objective: Any
  weight: float

  def __post_init__(self):
    checks.numbers_at_least(0, supervised_weight=self.weight)

  def __call__(self, predict, batch, anchors, seed):
    """Returns the weighted loss, and the objective's metrics."""
    loss, metrics = self.objective(predict, batch, anchors, seed)
    return self.weight * loss, metrics
