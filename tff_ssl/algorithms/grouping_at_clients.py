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

from tff_ssl import objectives
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms.grouping import SLOTS
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.objectives.consistency import THRESHOLD, VIEWS_FORWARD
from tff_ssl.objectives.semi_supervised import (
  UNLABELLED_LOSS,
  UNLABELLED_WEIGHT,
)
from tff_ssl.setting import check_arguments

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.templates import groups, local_training
  from tff_ssl.templates.server import finalizers

SETTINGS = (
  shared.NUM_GROUPS,
  THRESHOLD,
  VIEWS_FORWARD,
  UNLABELLED_LOSS,
  UNLABELLED_WEIGHT,
  shared.LABELLED_BATCH_SIZE,
  *shared.LOCAL,
  *SLOTS,
)


def build_grouping_at_clients(
  model,
  *,
  data_spec,
  views,
  num_groups: int = 2,
  threshold: float = 0.95,
  unlabelled_loss: str = 'crl',
  unlabelled_weight: float = 1.0,
  views_forward: str = 'auto',
  client_objective=None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 64,
  labelled_batch_size: int | None = None,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  group_assignment: str = 'sampler',
  start_model: str = 'group',
  client_momentum: str = 'reset',
  num_slots: int | None = None,
  schedule=None,
  model_distributor: tff.learning.templates.DistributionProcess | None = None,
  model_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
  metrics_aggregator=None,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds the learning process.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    num_groups: S >= 1.
    threshold: tau in Eq. 4.
    unlabelled_loss: 'crl' (Eq. 4), or 'self_training' on both views, as in the
      authors' code.
    unlabelled_weight: Weight of the unlabelled examples' loss, >= 0.
    views_forward: 'auto', 'joint' or 'separate'; see
      `tff_ssl.objectives.consistency.forward`.
    client_objective: L_k; by default that of Appendix H with `views` and the
      four arguments above, which belong to it alone.
    client_optimizer: By default SGD of the paper: learning rate 0.03, Nesterov
      momentum 0.9, coupled weight decay 1e-4.
    batch_size: Examples in a client's minibatch (B).
    labelled_batch_size: Examples in the labelled minibatch beside it; by
      default `batch_size`.
    local_steps: Steps of a client in a round (T); 16 if neither this nor
      `local_epochs` is given.
    local_epochs: Instead of `local_steps`, passes over the client's examples.
    group_assignment: 'sampler' or 'in_process'; see
      `tff_ssl.algorithms.grouping`.
    start_model: 'group' or 'slot'; likewise.
    client_momentum: 'reset' or 'slot'; likewise.
    num_slots: C, for `client_momentum='slot'` only.
    schedule: Function of the global step to a factor on the learning rate; it
      needs `local_steps`.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: By default `GroupMeanFactory(num_groups)`.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and aggregator do not fit each other.
  """
  check_arguments((*SETTINGS, shared.GROUP_ASSIGNMENT), locals())
  training = local_training.LocalTraining(
    model,
    client_objective
    or objectives.SemiSupervised(
      views, threshold, unlabelled_loss, unlabelled_weight, views_forward
    ),
    local_training.TrainingPlan(
      client_optimizer or optimizers.build_grouping_sgd(),
      batch_size,
      **local_training.steps_or_epochs(local_steps, local_epochs),
      schedule=schedule,
      labelled_batch_size=labelled_batch_size or batch_size,
    ),
  )
  return groups.compose(
    training,
    groups.Grouping(num_groups, group_assignment, start_model),
    functools.partial(finalizers.build_no_server_training, groups.average),
    data_spec=data_spec,
    wiring=templates.Wiring(
      model_distributor, model_aggregator, metrics_aggregator, seed
    ),
    memories=templates.slot_momentum(
      client_momentum, num_slots, data_spec, training.initial_optimizer_state
    ),
  )


SPEC = ProcessSpec(
  'grouping_client_labels',
  'Some labels at clients, no server data, averages within S groups.',
  'Zhang et al. 2021, arXiv 2008.11364, Appendix H',
  build_grouping_at_clients,
  SETTINGS,
  labels_at='dealt',
  makes_pseudo_labels=True,
  has_server_training=False,
)
