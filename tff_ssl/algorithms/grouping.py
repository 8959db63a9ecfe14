"""Semi-supervised FL with grouping-based model averaging (Zhang et al.).

Zhang et al., Improving Semi-supervised Federated Learning by Reducing the
Gradient Diversity of Models (arXiv 2008.11364). Clients hold unlabelled data,
the server a few labelled examples. In round t, with S groups G_1 ... G_S of
participating clients:

```
client k in G_i   w_k = T steps on L_k from w_avg,i          (Eq. 4, 5 or 6)
server            w_s = steps on L_s from w_avg              (Eq. 3)
group             w_avg,i <- (w_s + sum_{k in G_i} w_k) / (|G_i| + 1)   (Eq. 7)
all               w_avg   <- 1/S sum_i w_avg,i                          (Eq. 7)
```

With S = 1 this is FedAvg with a server model (Eq. 8). The global weights of the
process are the stack [S, ...] of the group models; its model weights, for
evaluation, are w_avg.

Every client receives all S models and keeps one, so the downlink is S models.
With equal groups w_avg = (S w_s + sum_k w_k) / (C + S): grouping also raises
the server's weight from 1/(C+1) to S/(C+S). `server_weight=S` with
`num_groups=1` is FedAvg with the same formula for w_avg, the control for that
effect.

Where the authors' code departs from their text, or says what it leaves open:

  * `start_model`: 'group' is the model of the client's present group, as in the
    code, where a slot never leaves its group; 'slot' is that of its previous
    group, as in the text, where groups change every round and w_avg,i goes to
    the previous members of G_i (a client that was in none takes its slot's).
  * `client_momentum`: 'reset' is fresh every round, as stateless clients have
    it; 'slot' stays with the slot, as in the code.
  * `bn_statistics`: 'averaged' as all weights are; 'local' are the server's
    own, as in the code (of several replicas, their mean).
  * `server_replicas`: 'one' update for all groups (Eq. 7); 'per_group' has its
    own batches and momentum for each, as in the code.
  * `views_forward`: 'auto' is one pass for both views where there is batch
    normalisation, which needs it, else two; 'joint', as in the code, is one
    pass always; 'separate' is two.
"""

from __future__ import annotations

import dataclasses
import functools

from etils import epy

from tff_ssl import objectives
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms.process_spec import ProcessSpec
from tff_ssl.objectives.consistency import THRESHOLD, VIEWS_FORWARD
from tff_ssl.setting import Setting, check_arguments, only_with

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, templates
  from tff_ssl.templates import groups, local_training, stacks
  from tff_ssl.templates.server import server_training

SERVER = (
  shared.SERVER_STEPS,
  shared.SERVER_BATCH_SIZE,
  shared.SERVER_WARMUP_ROUNDS,
  Setting(
    'server_weight',
    float,
    'Weight of the server model in each average.',
    above=0,
    below=1e9,
  ),
  Setting(
    'bn_statistics',
    str,
    "Batch normalisation's moving statistics: averaged, or the server's own "
    '(local).',
    choices=('averaged', 'local'),
    used_when=(only_with('norm', 'batch'),),
  ),
)
SERVER_REPLICAS = Setting(
  'server_replicas',
  str,
  'Server models in each round: one, or one per_group.',
  choices=('one', 'per_group'),
  used_when=(shared.GROUPED,),
)
SLOTS = (shared.START_MODEL, shared.CLIENT_MOMENTUM)
SETTINGS = (
  shared.NUM_GROUPS,
  THRESHOLD,
  VIEWS_FORWARD,
  *shared.LOCAL,
  *SLOTS,
  *SERVER,
  SERVER_REPLICAS,
)


def build_grouping_ssfl(
  model,
  *,
  server_data: tff.Computation,
  data_spec,
  views,
  num_groups: int = 2,
  threshold: float = 0.95,
  views_forward: str = 'auto',
  client_objective=None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  batch_size: int = 64,
  local_steps: int | None = None,
  local_epochs: int | None = None,
  server_batch_size: int | None = None,
  server_steps: int = 16,
  server_weight: float = 1.0,
  server_warmup_rounds: int = 0,
  server_replicas: str = 'one',
  group_assignment: str = 'sampler',
  start_model: str = 'group',
  client_momentum: str = 'reset',
  num_slots: int | None = None,
  bn_statistics: str = 'averaged',
  schedule=None,
  model_distributor: tff.learning.templates.DistributionProcess | None = None,
  model_aggregator: tff.aggregators.WeightedAggregationFactory | None = None,
  metrics_aggregator=None,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds the learning process of Eqs. 3-8.

  Args:
    model: A `tff_ssl.models.FunctionalModel`.
    server_data: No-argument `tff.Computation` that returns the labelled server
      set, a sequence of `<x=..., y=...>` (D_s).
    data_spec: `tff_ssl.templates.ClientDataSpec`, the type of client data.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    num_groups: S >= 1.
    threshold: tau in Eqs. 4 and 5; for the default objective.
    views_forward: 'auto', 'joint' or 'separate'; likewise, and see above.
    client_objective: L_k; by default CRL (Eq. 4) with `views`, `threshold`.
    client_optimizer: By default SGD of the paper: learning rate 0.03, Nesterov
      momentum 0.9, coupled weight decay 1e-4.
    server_optimizer: The same default.
    batch_size: Examples in a client's minibatch (B).
    local_steps: Steps of a client in a round (T); 16 if neither this nor
      `local_epochs` is given.
    local_epochs: Instead of `local_steps`, passes over the client's examples.
    server_batch_size: By default `batch_size`.
    server_steps: Steps of the server in a round.
    server_weight: Weight of w_s in each group's mean; a client has weight 1.
    server_warmup_rounds: First rounds in which only the server trains.
    server_replicas: 'one' or 'per_group'.
    group_assignment: 'sampler': `group` of the clients' context says it, which
      allows exactly equal groups. 'in_process': every client is put into a
      group at random, so that group sizes are binomial and client data need
      no context.
    start_model: 'group', or 'slot'; the client data name slots then
      (`ClientDataSpec.in_slots`).
    client_momentum: 'reset', or 'slot'; likewise, and `num_slots` is given.
    num_slots: C, for `client_momentum='slot'` only.
    bn_statistics: 'averaged' or 'local'.
    schedule: Function of the global step to a factor on both learning rates.
      Clients and server share one clock, which advances by `server_steps` a
      round, however many steps a client takes.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: By default `GroupMeanFactory(num_groups)`; give one with
      other inner factories for clipping, compression or secure sums. It says
      which are refused. In warm-up rounds an adaptive one rests.
    metrics_aggregator: As in TFF's builders.
    seed: Root of all randomness, in [0, 2**31).

  Returns:
    A `tff.learning.templates.LearningProcess`. Its metrics hold
    `client_work/train`, `client_work/clients`, `aggregator/group_weights` and
    `finalizer/server`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and server data do not fit each other.
  """
  check_arguments((*SETTINGS, shared.GROUP_ASSIGNMENT), locals())
  client_training = local_training.LocalTraining(
    model,
    client_objective
    or objectives.ConsistencyRegularization(views, threshold, views_forward),
    local_training.TrainingPlan(
      client_optimizer or optimizers.build_grouping_sgd(),
      batch_size,
      **local_training.steps_or_epochs(local_steps, local_epochs),
      schedule=schedule,
      steps_per_round=server_steps,
    ),
  )
  server = server_training.ServerTraining(
    local_training.LocalTraining(
      model,
      objectives.Supervised(views),
      local_training.TrainingPlan(
        server_optimizer or optimizers.build_grouping_sgd(),
        batch_size if server_batch_size is None else server_batch_size,
        steps=server_steps,
        schedule=schedule,
      ),
    ),
    server_data,
    num_groups if server_replicas == 'per_group' else 1,
  )

  def combine(group_models, server_models, aggregate):
    new = groups.average(group_models, aggregate, server_models, server_weight)
    if bn_statistics == 'averaged':
      return new
    own = tf.nest.map_structure(
      lambda average, value: tf.broadcast_to(value, tf.shape(average)),
      new.non_trainable,
      server_models.non_trainable,
    )
    return tff.learning.models.ModelWeights(new.trainable, own)

  process = groups.compose(
    client_training,
    groups.Grouping(
      num_groups, group_assignment, start_model, server_warmup_rounds
    ),
    functools.partial(
      server_training.build_server_training,
      server,
      combine,
      server_start=lambda group_models, aggregate: stacks.mean(group_models),
      seed=seed,
    ),
    data_spec=data_spec,
    wiring=templates.Wiring(
      model_distributor, model_aggregator, metrics_aggregator, seed
    ),
    memories=templates.slot_momentum(
      client_momentum,
      num_slots,
      data_spec,
      client_training.initial_optimizer_state,
    ),
  )
  return process.with_parts(
    dataclasses.replace(process.parts, server=server, server_start=stacks.mean)
  )


_PAPER = 'Zhang et al. 2021, arXiv 2008.11364'
_SERVER_COUNTS = (
  'the server model is one of the models that are averaged, so n copies of a '
  'client outweigh it more than one copy does (Eq. 7)'
)
# Never: clients do not join.
_SERVER_ONLY_ROUNDS = 2**31 - 1
_UNGROUPED = (*shared.LOCAL, shared.CLIENT_MOMENTUM, *SERVER)

SPECS = (
  ProcessSpec(
    'grouping',
    'CRL at clients, labels at the server, averages within S groups.',
    f'{_PAPER}, Eqs. 3, 4 and 7',
    build_grouping_ssfl,
    SETTINGS,
    makes_pseudo_labels=True,
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'fedavg_ssfl',
    'The same without groups: FedAvg with a server model (S = 1).',
    f'{_PAPER}, Eqs. 3, 4 and 8',
    build_grouping_ssfl,
    (THRESHOLD, VIEWS_FORWARD, *_UNGROUPED),
    fixed={'num_groups': 1},
    makes_pseudo_labels=True,
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'self_training',
    'Self-training on weak views at clients, FedAvg with a server model.',
    f'{_PAPER}, Eqs. 3, 5 and 8',
    build_grouping_ssfl,
    (THRESHOLD, *_UNGROUPED),
    fixed={'num_groups': 1},
    makes_pseudo_labels=True,
    objective=objectives.SelfTraining,
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
    has_strong_view=False,
  ),
  ProcessSpec(
    'server_only',
    "The lower bound: training on the server's labelled examples alone.",
    f'{_PAPER}, Eq. 3',
    build_grouping_ssfl,
    (shared.SERVER_STEPS, shared.SERVER_BATCH_SIZE),
    fixed={
      'num_groups': 1,
      'local_steps': 1,
      'server_warmup_rounds': _SERVER_ONLY_ROUNDS,
    },
    # Where the server alone moves the model, 0.03 is too high: with 100 labels
    # of the writers its loss grows again after 60 rounds. Averaging with
    # clients damps its steps.
    defaults={'learning_rate': 0.01},
    has_client_training=False,
    has_strong_view=False,
    bound='labels of the server alone',
  ),
  ProcessSpec(
    'grouping_supervised',
    'The upper bound: all labels at clients, and the server data.',
    f'{_PAPER}, Eqs. 3, 6 and 7 (Figure 2, Appendix F)',
    build_grouping_ssfl,
    (shared.NUM_GROUPS, *shared.LOCAL, *SLOTS, *SERVER, SERVER_REPLICAS),
    objective=objectives.Supervised,
    labels_at='clients',
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
    has_strong_view=False,
  ),
)
