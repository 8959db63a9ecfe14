"""FixMatch in one place: the central training that grouping is compared with.

Sohn et al., FixMatch: Simplifying Semi-supervised Learning with Consistency and
Confidence (arXiv 2001.07685), Section 2. One participant holds all the data. A
step takes B labelled and mu B unlabelled examples,

```math
L = L_s(B labelled, weak view) + lambda_u L_u(mu B unlabelled)
```

with L_u the cross-entropy of the strong view with the label of the weak view,
where its confidence reaches tau: the loss of
`tff_ssl.SemiSupervised`. What is evaluated is a moving average of
the weights. Zhang et al. (arXiv 2008.11364), Table G.1, set grouping beside it.

As a process of this library it has one client, which takes T steps in a round,
and whose momentum goes on. The average here moves once in a round: a decay of
0.999 per step is 0.999 ** T per round.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import fed_avg, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import Setting, without
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional


# Of a step, in FixMatch.
_DECAY = 0.999
_WEIGHT_DECAY = 5e-4
_CLIENT_TRAINING = TrainingPlan(batch_size=64, steps=16)
_WIRING = Wiring(ema_decay=_DECAY**16)


@tff_arguments.taken
def build_fixmatch(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  unlabelled_ratio: int = 7,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  wiring: Wiring = _WIRING,
) -> tff.learning.templates.LearningProcess:
  """Builds FixMatch.

  With more than one client in a round it is FedAvg with FixMatch at clients and
  the mean of their momenta; then `build_fed_avg` with
  `tff_ssl.SemiSupervised` is what says so.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of the data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    unlabelled_ratio: mu >= 1.
    client_objective: By default `tff_ssl.SemiSupervised(views)`.
    client_training: How it trains; by default 16 steps in a round, on 64
      labelled examples (B, `batch_size`) and mu B unlabelled ones, SGD with
      learning rate 0.03, Nesterov momentum 0.9 and coupled weight decay 5e-4.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). `ema_decay` is
      by default 0.999 per step, of 16 steps.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model and data do not fit each other.
  """
  UNLABELLED_RATIO.check(unlabelled_ratio)
  plan = client_training.over(
    _CLIENT_TRAINING,
    optimizer=optimizers.build_nesterov_sgd(0.03, weight_decay=_WEIGHT_DECAY),
  )
  if plan.labelled_batch_size is not None:
    raise ValueError(
      f'client_training has labelled_batch_size={plan.labelled_batch_size}: '
      'give batch_size, the labelled examples of a step, and unlabelled_ratio.'
    )
  return fed_avg.build_fed_avg(
    model,
    data_spec=data_spec,
    views=views,
    client_objective=client_objective or objectives.SemiSupervised(views),
    client_training=dataclasses.replace(
      plan,
      batch_size=unlabelled_ratio * plan.batch_size,
      labelled_batch_size=plan.batch_size,
      client_momentum='mean',
    ),
    client_weighting='uniform',
    wiring=wiring.over(_WIRING),
  )


UNLABELLED_RATIO = Setting(
  'unlabelled_ratio',
  int,
  'mu, unlabelled examples in a step for each labelled one.',
  at_least=1,
  at_most=1000,
  group='client training',
)


def _derive(values, given):
  """Returns the decay of a round, of as many steps as it takes."""
  del given
  steps = values.get('local_steps')
  return {'ema_decay': round(_DECAY**steps, 6)} if steps else {}


SPEC = ProcessSpec(
  'fixmatch',
  'Central FixMatch: one client has all data, some of it with labels.',
  build_fixmatch,
  (
    UNLABELLED_RATIO,
    *without(
      objectives.SemiSupervised.settings, 'unlabelled_loss', 'temperature'
    ),
    *shared.LOCAL,
    shared.EMA_DECAY,
  ),
  source='Sohn et al. 2020, arXiv 2001.07685, Section 2',
  needs=Needs(labels_at='dealt'),
  objective=objectives.SemiSupervised,
  defaults={
    'partition': 'pooled',
    'local_steps': 16,
    'weight_decay': _WEIGHT_DECAY,
  },
  derive=_derive,
  makes_pseudo_labels=True,
)
