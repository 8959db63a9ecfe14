"""Grouping-based averaging where clients hold some labels (Zhang et al., H).

Zhang et al., Improving Semi-supervised Federated Learning by Reducing the
Gradient Diversity of Models (arXiv 2008.11364). The server has no data and
averages within S groups only,

```
client k in G_i   w_k = T steps on L_k from w_avg,i
group             w_avg,i <- sum_{k in G_i} w_k / |G_i|
all               w_avg   <- 1/S sum_i w_avg,i
```

where L_k adds the server's loss, Eq. 3, on the client's labelled examples to
CRL, Eq. 4, on all of them (`tff_ssl.objectives.SemiSupervised`). A group
without usable clients keeps its model. `num_groups=1` is FedAvg with uniform
weights.
"""

from __future__ import annotations

import functools

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import grouping, tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import check_arguments
from tff_ssl.objectives.consistency import THRESHOLD, VIEWS_FORWARD
from tff_ssl.objectives.semi_supervised import (
  UNLABELLED_LOSS,
  UNLABELLED_WEIGHT,
)
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import finalizers, groups

SETTINGS = (
  shared.NUM_GROUPS,
  THRESHOLD,
  VIEWS_FORWARD,
  UNLABELLED_LOSS,
  UNLABELLED_WEIGHT,
  shared.LABELLED_BATCH_SIZE,
  *shared.LOCAL,
  *grouping.SLOTS,
  CLASS_WEIGHTS,
)

_CLIENT_TRAINING = TrainingPlan(batch_size=64, steps=16)


@tff_arguments.taken
def build_grouping_at_clients(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  num_groups: int = 2,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  group_assignment: str = 'sampler',
  start_model: str = 'group',
  client_momentum: str = 'reset',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds the learning process.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    num_groups: S >= 1.
    client_objective: L_k; by default that of Appendix H,
      `tff_ssl.SemiSupervised(views)`.
    client_training: How a client trains; by default as in the paper: 16 steps
      (T) on minibatches of 64 (B) and as many labelled examples beside them,
      SGD with learning rate 0.03, Nesterov momentum 0.9 and coupled weight
      decay 1e-4.
    group_assignment: 'sampler' or 'in_process'; see
      `tff_ssl.algorithms.grouping`.
    start_model: 'group' or 'slot'; likewise.
    client_momentum: 'reset', 'slot' or 'mean'; likewise.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator is by default `GroupMeanFactory(num_groups)`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and aggregator do not fit each other.
  """
  check_arguments((*SETTINGS, shared.GROUP_ASSIGNMENT), locals())
  plan = client_training.over(
    _CLIENT_TRAINING, optimizer=optimizers.build_grouping_sgd()
  )
  training = templates.LocalTraining(
    model,
    client_objective or objectives.SemiSupervised(views),
    plan,
  )
  return grouping.compose(
    training,
    groups.Grouping(num_groups, group_assignment, start_model),
    functools.partial(finalizers.build_no_server_training, groups.average),
    data_spec=data_spec,
    client_momentum=client_momentum,
    wiring=wiring,
  )


SPEC = ProcessSpec(
  'grouping_client_labels',
  'Some labels at clients, no server data, averages within S groups.',
  build_grouping_at_clients,
  SETTINGS,
  source='Zhang et al. 2021, arXiv 2008.11364, Appendix H',
  needs=Needs(labels_at='dealt'),
  objective=objectives.SemiSupervised,
  makes_pseudo_labels=True,
)
