"""What a participant minimises.

An objective is a callable with one signature,

```
objective(predict, batch, anchors, seed) -> (loss, metrics)
```

where `predict(x, training=..., seed=...)` calls the model at the present
weights and `predict.at(weights, x)` at others
(`tff_ssl.templates.prediction.Predictor`), `batch` is an ordered dict
with `x`, `y` and maybe `true_y` (and `labelled`, a second minibatch of labelled
examples, where `LocalTraining` was asked for one, and the participant's own
constants, such as `class_priors` and `set_shares`, and `step`, an `int32`
scalar, the steps before in this local training), `anchors` are the
`ModelWeights` that training started from, or what else an objective compares
with (`Experts`, `MixPool`), and `seed` is `int32 [2]`, other for
each step. `metrics` maps each name of the attribute `metric_names` to a pair
(numerator, denominator) of scalars.

An objective may have an attribute `rows`, which says which examples
`LocalTraining` gives it where nothing else does: 'all' (the default), or
'labelled', those with `y >= 0` (`tff_ssl.templates.minibatches.Selection`).
One with a method `survey` sees all examples before the first step
(`tff_ssl.Objective`).
Its `settings` are those of its arguments that a user chooses: a process with
the objective lists them.
"""

from tff_ssl.objectives.aligned import AlignedLabels
from tff_ssl.objectives.consistency import (
  ConsistencyRegularization,
  SelfTraining,
  SemiSupervised,
)
from tff_ssl.objectives.inter_client import InterClientConsistency, Peers
from tff_ssl.objectives.label_proportions import (
  LabelProportions,
  VirtualAdversarialProportions,
)
from tff_ssl.objectives.mixup import (
  ConfidenceMix,
  FixAndMix,
  MixPool,
  OnlyMixed,
  PriorLabels,
)
from tff_ssl.objectives.proxy_tasks import (
  PROXY_TASKS,
  JointlyOptimized,
  ProxyTask,
  Reconstruction,
  Rotation,
  SelfSupervised,
  Words,
)
from tff_ssl.objectives.sharpness import SharpnessAwareConsistency
from tff_ssl.objectives.supervised import Supervised
from tff_ssl.objectives.surrogate_sets import SurrogateSets
from tff_ssl.objectives.two_experts import Experts, TwoExperts
from tff_ssl.objectives.wrappers import (
  Corrected,
  Correction,
  L1Penalty,
  Proximal,
  WeightedLoss,
)

__all__ = [
  'AlignedLabels',
  'ConfidenceMix',
  'ConsistencyRegularization',
  'Corrected',
  'Correction',
  'Experts',
  'FixAndMix',
  'InterClientConsistency',
  'JointlyOptimized',
  'LabelProportions',
  'L1Penalty',
  'MixPool',
  'OnlyMixed',
  'PROXY_TASKS',
  'PriorLabels',
  'Peers',
  'Proximal',
  'ProxyTask',
  'Reconstruction',
  'Rotation',
  'SelfSupervised',
  'SelfTraining',
  'SemiSupervised',
  'SharpnessAwareConsistency',
  'Supervised',
  'SurrogateSets',
  'TwoExperts',
  'VirtualAdversarialProportions',
  'Words',
  'WeightedLoss',
]
