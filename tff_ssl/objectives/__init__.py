"""What a participant minimises.

An objective is a callable with one signature,

```
objective(predict, batch, anchors, seed) -> (loss, metrics)
```

where `predict(x, training=..., seed=...)` calls the model at the present
weights and `predict.at(weights, x)` at others
(`tff_ssl.templates.prediction.Predictor`), `batch` is an ordered dict
with `x`, `y` and maybe `true_y` (and `labelled`, a second minibatch of labelled
examples, where `LocalTraining` was asked for one), `anchors` are the
`ModelWeights` that training started from, or what else an objective compares
with (`Experts`), and `seed` is `int32 [2]`, other for
each step. `metrics` maps each name of the attribute `metric_names` to a pair
(numerator, denominator) of scalars.
"""

from tff_ssl.objectives.consistency import (
  ConsistencyRegularization,
  SelfTraining,
)
from tff_ssl.objectives.corrected import Corrected, Correction
from tff_ssl.objectives.proximal import Proximal
from tff_ssl.objectives.proxy_tasks import (
  PROXY_TASKS,
  ProxyTask,
  Reconstruction,
  Rotation,
)
from tff_ssl.objectives.self_supervised import (
  JointlyOptimized,
  SelfSupervised,
)
from tff_ssl.objectives.semi_supervised import SemiSupervised
from tff_ssl.objectives.supervised import Supervised
from tff_ssl.objectives.two_experts import Experts, TwoExperts

__all__ = [
  'ConsistencyRegularization',
  'Corrected',
  'Correction',
  'Experts',
  'JointlyOptimized',
  'PROXY_TASKS',
  'Proximal',
  'ProxyTask',
  'Reconstruction',
  'Rotation',
  'SelfSupervised',
  'SelfTraining',
  'SemiSupervised',
  'Supervised',
  'TwoExperts',
]
