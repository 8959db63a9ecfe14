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
    pass always.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from etils import epy

from tff_ssl import objectives, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.algorithms import tff_arguments
from tff_ssl.algorithms.process_spec import Needs, ProcessSpec
from tff_ssl.common.setting import (
  Setting,
  check_arguments,
  only_with,
  unless,
  without,
)
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import compat, optimizers, stacks, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import client_task, finalizers, groups
  from tff_ssl.templates import server_training as training_at_server


_CLIENT_TRAINING = TrainingPlan(batch_size=64, steps=16)
_SERVER_TRAINING = TrainingPlan(steps=16)


def build_local_update(
  training: templates.LocalTraining,
  grouping: groups.Grouping,
  *,
  since_start: bool = False,
) -> client_task.LocalWork:
  """Returns the local update of a client that trains its group's model.

  It has weight 1, and the client's group beside it. The delta is against the
  model of that group, wherever the client started, so that the mean of a
  group's clients is its model plus the mean delta; with `since_start` it is
  against the model that the client started from, which tells what it learnt.
  """

  def local_update(task):
    group, invalid = grouping.group_of(task)
    own = stacks.row(task.weights, group)
    start, start_invalid = grouping.start_of(task)
    invalid |= start_invalid
    joined = task.round >= grouping.warmup_rounds
    anchors = start
    if grouping.anchors == 'global':
      anchors = grouping.global_model(task.weights)
    result = training.run_task(
      task, start=start, anchors=anchors, active=joined & ~invalid
    )
    update = client_task.LocalUpdate(
      client_task.subtract(result.weights, start if since_start else own),
      tf.cast(joined, tf.float32),
      result,
      invalid,
    )
    return update, group

  return local_update


@dataclasses.dataclass(frozen=True)
class _Meeting:
  """How the server's model and those of the groups meet.

  Its fields are arguments of `build_grouping_ssfl`.
  """

  server_order: str
  server_weight: float
  bn_statistics: str
  global_momentum: float

  def __post_init__(self):
    if self.global_momentum and self.server_order != 'after':
      raise ValueError(
        f'global_momentum={self.global_momentum} does not fit server_order='
        f'{self.server_order!r}, where the server model is in the average: use '
        "server_order='after', or global_momentum=0."
      )

  def server_start(self, group_models, aggregate):
    """Returns what the server trains from: 'after', the clients come first."""
    if self.server_order == 'after':
      group_models = groups.average(group_models, aggregate)
    return stacks.mean(group_models)

  def combine(self, group_models, server_models, aggregate):
    """Returns the new group models."""
    if self.server_order == 'after':
      new = groups.recentre(
        groups.average(group_models, aggregate),
        server_models,
        aggregate['weight'],
        self.server_weight,
      )
    else:
      new = groups.average(
        group_models, aggregate, server_models, self.server_weight
      )
      if self.bn_statistics == 'averaged':
        return new
    # Statistics that are not averaged are the server's, in every group.
    own = tf.nest.map_structure(
      lambda average, value: tf.broadcast_to(value, tf.shape(average)),
      new.non_trainable,
      server_models.non_trainable,
    )
    return tff.learning.models.ModelWeights(new.trainable, own)

  def build_finalizer(self, server, seed, **types):
    """Returns the finalizer in which the server trains and the models meet."""
    finalizer = training_at_server.build_server_training(
      server, self.combine, server_start=self.server_start, seed=seed, **types
    )
    if not self.global_momentum:
      return finalizer
    return groups.with_momentum(
      finalizer, self.global_momentum, types['weights_type']
    )


def compose(
  training: templates.LocalTraining,
  grouping: groups.Grouping,
  build_finalizer: Callable[..., tff.learning.templates.FinalizerProcess],
  *,
  data_spec: templates.ClientDataSpec,
  client_momentum: str,
  wiring: Wiring,
  server: training_at_server.ServerTraining | None = None,
) -> tff.learning.templates.LearningProcess:
  """Composes the process of clients that train the models of their groups.

  Args:
    training: What a client does.
    grouping: How clients are grouped.
    build_finalizer: What the server makes of it: called with `weights_type` and
      `aggregate_type`, the unplaced types of the group models and of the
      aggregator's result.
    data_spec: The type of client data.
    client_momentum: See `build_grouping_ssfl`.
    wiring: See `build_grouping_ssfl`.
    server: How the server trains from w_avg, if it does.
  """
  grouping.check(training.model, data_spec, wiring)
  initial = templates.initial_weights(training.model, wiring.seed)
  work = templates.build_client_work(
    build_local_update(training, grouping),
    templates.stacked(initial, grouping.num_rows),
    data_spec=data_spec,
    initial_hparams=training.initial_hparams,
    wiring=wiring,
    memories=templates.client_momentum(
      client_momentum, data_spec, training.initial_optimizer_state
    ),
  )
  group_models = templates.stacked(initial, grouping.num_groups)

  def build_last(weights_type, aggregate_type):
    finalizer = build_finalizer(
      weights_type=group_models.type_signature.result,
      aggregate_type=aggregate_type,
    )
    return grouping.with_average(finalizer, weights_type)

  return templates.compose(
    work,
    create_aggregator=functools.partial(
      groups.create_aggregator,
      wiring.model_aggregator,
      grouping.num_groups,
      min_group_size=wiring.min_group_size,
    ),
    build_finalizer=build_last,
    wiring=wiring,
    idle_rounds=grouping.warmup_rounds,
    view=grouping.view,
    measurable=templates.Measurable(
      training,
      build_local_update(training, grouping, since_start=True),
      lambda task: grouping.start_of(task)[0],
      data_spec,
      grouping.num_groups,
      server,
      lambda weights: stacks.mean(grouping.models(weights)),
    ),
  )


@tff_arguments.taken
def build_grouping_ssfl(
  model: functional.FunctionalModel,
  *,
  server_data: compat.Computation,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  num_groups: int = 2,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = _CLIENT_TRAINING,
  server_training: TrainingPlan = _SERVER_TRAINING,
  server_order: str = 'beside',
  server_weight: float = 1.0,
  global_momentum: float = 0.0,
  server_warmup_rounds: int = 0,
  server_replicas: str = 'one',
  group_assignment: str = 'sampler',
  start_model: str = 'group',
  client_momentum: str = 'reset',
  bn_statistics: str = 'averaged',
  ema_decay: float = 0.0,
  class_weights: tuple[float, ...] | None = None,
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds the learning process of Eqs. 3-8.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    server_data: No-argument `tff.Computation` that returns the labelled server
      set, a sequence of `<x=..., y=...>` (D_s).
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    num_groups: S >= 1.
    client_objective: L_k; by default CRL (Eq. 4),
      `tff_ssl.ConsistencyRegularization(views)`, whose arguments are tau and
      `views_forward`.
    client_training: How a client trains; by default as in the paper: 16 steps
      (T) on minibatches of 64 (B), SGD with learning rate 0.03, Nesterov
      momentum 0.9 and coupled weight decay 1e-4. Clients and server share one
      clock: a schedule's global step advances by the server's steps per round,
      unless `steps_per_round` says otherwise.
    server_training: How the server trains; the same default, on minibatches of
      the clients' size.
    server_order: 'beside': the server trains from w_avg while the clients
      train, and its model is averaged with theirs (Eq. 7). 'after': groups
      average their clients' models alone; the server trains from the mean of
      these averages, as in SemiFL (Diao et al., arXiv 2106.01432). Its model
      becomes w_avg; groups deviate from it as Eq. 7 lets them
      (`tff_ssl.templates.groups.recentre`), but for the moving statistics of
      batch normalisation, which are the server's.
    server_weight: Weight of w_s in each group's mean; a client has weight 1.
    global_momentum: beta_g, momentum of the clients' averaged change, in
      [0, 1), with `server_order='after'`
      (`tff_ssl.templates.groups.with_momentum`).
    server_warmup_rounds: First rounds in which only the server trains.
    server_replicas: 'one' or 'per_group'.
    group_assignment: 'sampler': `group` of the clients' context says it, which
      allows exactly equal groups. 'in_process': every client is put into a
      group at random, so that group sizes are binomial and client data need
      no context.
    start_model: 'group', or 'slot'; the client data name slots then
      (`ClientDataSpec.num_slots`).
    client_momentum: 'reset'; 'slot', likewise; or 'mean', of what the clients
      of the round before left (`tff_ssl.templates.memories.client_momentum`).
    bn_statistics: 'averaged' or 'local'.
    ema_decay: Where it is above 0, what is evaluated is a moving average of
      w_avg over rounds (`tff_ssl.templates.moving_average`); an
      objective whose teacher is 'received' gets its labels from it, too.
      Clients receive S + 1 models.
    class_weights: d positive factors of the server's loss by class; by default
      1. Those of clients with labels are an argument of their objective.
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator is by default `GroupMeanFactory(num_groups)`, into which one of
      TFF's means is put, for clipping, compression or secure sums. It says
      which are refused, and what differential privacy takes. In warm-up
      rounds an adaptive one rests.

  Returns:
    A `tff.learning.templates.LearningProcess`. Its metrics hold
    `client_work/train`, `client_work/clients`, `aggregator/group_weights` and
    `finalizer/server`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and server data do not fit each other.
  """
  check_arguments((*SETTINGS, shared.GROUP_ASSIGNMENT), locals())
  meeting = _Meeting(
    server_order, server_weight, bn_statistics, global_momentum
  )
  optimizer = optimizers.build_grouping_sgd()
  client_plan = client_training.over(_CLIENT_TRAINING, optimizer=optimizer)
  server_plan = server_training.over(
    _SERVER_TRAINING, optimizer=optimizer, batch_size=client_plan.batch_size
  )
  server = training_at_server.ServerTraining(
    templates.LocalTraining(
      model,
      objectives.Supervised(views, class_weights=class_weights),
      server_plan,
    ),
    server_data,
    num_groups if server_replicas == 'per_group' else 1,
  )
  objective = client_objective or objectives.ConsistencyRegularization(views)
  clients = templates.LocalTraining(
    model, objective, client_plan.on_clock_of(server_plan)
  )
  # A received teacher is the global model, which clients get besides that of
  # their group, and which the server has just trained.
  teacher = getattr(objective, 'teacher', None)
  grouping = groups.Grouping(
    num_groups,
    group_assignment,
    start_model,
    server_warmup_rounds,
    'global' if teacher == 'received' else 'start',
    ema_decay,
  )
  return compose(
    clients,
    grouping,
    functools.partial(meeting.build_finalizer, server, wiring.seed),
    data_spec=data_spec,
    client_momentum=client_momentum,
    wiring=wiring,
    server=server,
  )


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
  """Builds grouping where clients hold some labels, and the server no data.

  It averages within groups only (Zhang et al., Appendix H),

  ```
  group   w_avg,i <- sum_{k in G_i} w_k / |G_i|
  ```

  A group without usable clients keeps its model. `num_groups=1` is FedAvg with
  uniform weights.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.augmentation.ImageViews`.
    num_groups: S >= 1.
    client_objective: L_k; by default that of Appendix H,
      `tff_ssl.SemiSupervised(views)`: the server's loss, Eq. 3, on the client's
      labelled examples, and CRL, Eq. 4, on all of them.
    client_training: As in `build_grouping_ssfl`, with as many labelled examples
      beside each minibatch.
    group_assignment: As in `build_grouping_ssfl`.
    start_model: As in `build_grouping_ssfl`.
    client_momentum: As in `build_grouping_ssfl`.
    wiring: As in `build_grouping_ssfl`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and aggregator do not fit each other.
  """
  check_arguments((*AT_CLIENTS, shared.GROUP_ASSIGNMENT), locals())
  training = templates.LocalTraining(
    model,
    client_objective or objectives.SemiSupervised(views),
    client_training.over(
      _CLIENT_TRAINING, optimizer=optimizers.build_grouping_sgd()
    ),
  )
  return compose(
    training,
    groups.Grouping(num_groups, group_assignment, start_model),
    functools.partial(finalizers.build_no_server_training, groups.average),
    data_spec=data_spec,
    client_momentum=client_momentum,
    wiring=wiring,
  )


SERVER_WEIGHT = Setting(
  'server_weight',
  float,
  'Weight of the server model in each average.',
  above=0,
  below=1e9,
)
SERVER = (
  shared.SERVER_STEPS,
  shared.SERVER_BATCH_SIZE,
  shared.SERVER_WARMUP_ROUNDS,
  Setting(
    'server_order',
    str,
    'When the server trains: beside the clients (its model is averaged with '
    'theirs), or after them, on their average.',
    choices=('beside', 'after'),
  ),
  SERVER_WEIGHT,
  shared.GLOBAL_MOMENTUM,
  Setting(
    'bn_statistics',
    str,
    "Batch normalisation's moving statistics: averaged, or the server's own "
    '(local).',
    choices=('averaged', 'local'),
    used_when=(
      only_with('norm', 'batch'),
      unless('server_order', 'after', 'leaves the statistics of the server'),
    ),
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
  *objectives.ConsistencyRegularization.settings,
  *shared.LOCAL,
  *SLOTS,
  *SERVER,
  SERVER_REPLICAS,
  shared.EMA_DECAY,
  CLASS_WEIGHTS,
)
AT_CLIENTS = (
  shared.NUM_GROUPS,
  *without(objectives.SemiSupervised.settings, 'temperature'),
  shared.LABELLED_BATCH_SIZE,
  *shared.LOCAL,
  *SLOTS,
)


_PAPER = 'Zhang et al. 2021, arXiv 2008.11364'
_SERVER_COUNTS = (
  'the server model is one of the models that are averaged, so n copies of a '
  'client outweigh it more than one copy does (Eq. 7)'
)
# Never: clients do not join.
_SERVER_ONLY_ROUNDS = 2**31 - 1
_UNGROUPED = (
  *shared.LOCAL,
  shared.CLIENT_MOMENTUM,
  *SERVER,
  shared.EMA_DECAY,
  CLASS_WEIGHTS,
)
SPECS = (
  ProcessSpec(
    'grouping',
    'CRL at clients, labels at the server, averages within S groups.',
    build_grouping_ssfl,
    SETTINGS,
    source=f'{_PAPER}, Eqs. 3, 4 and 7',
    objective=objectives.ConsistencyRegularization,
    makes_pseudo_labels=True,
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'fedavg_ssfl',
    'The same without groups: FedAvg with a server model (S = 1).',
    build_grouping_ssfl,
    (*objectives.ConsistencyRegularization.settings, *_UNGROUPED),
    source=f'{_PAPER}, Eqs. 3, 4 and 8',
    fixed={'num_groups': 1},
    objective=objectives.ConsistencyRegularization,
    makes_pseudo_labels=True,
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'self_training',
    'Self-training on weak views at clients, FedAvg with a server model.',
    build_grouping_ssfl,
    (*objectives.SelfTraining.settings, *_UNGROUPED),
    source=f'{_PAPER}, Eqs. 3, 5 and 8',
    needs=Needs(views='weak'),
    fixed={'num_groups': 1},
    makes_pseudo_labels=True,
    objective=objectives.SelfTraining,
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'server_only',
    "The lower bound: training on the server's labelled examples alone.",
    build_grouping_ssfl,
    (
      *(shared.SERVER_STEPS, shared.SERVER_BATCH_SIZE, shared.EMA_DECAY),
      CLASS_WEIGHTS,
    ),
    source=f'{_PAPER}, Eq. 3',
    needs=Needs(clients='none', views='weak'),
    fixed={
      'num_groups': 1,
      'client_training': TrainingPlan(steps=1),
      'server_warmup_rounds': _SERVER_ONLY_ROUNDS,
    },
    # On images 0.03 is too high for a server that moves the model alone: with
    # 100 labels of the writers the loss grows again after 60 rounds.
    defaults={'learning_rate': 0.01},
    bound='labels of the server alone',
  ),
  ProcessSpec(
    'grouping_supervised',
    'The upper bound: all labels at clients, and the server data.',
    build_grouping_ssfl,
    (
      *(shared.NUM_GROUPS, *shared.LOCAL, *SLOTS, *SERVER, SERVER_REPLICAS),
      *(shared.EMA_DECAY, CLASS_WEIGHTS),
    ),
    source=f'{_PAPER}, Eqs. 3, 6 and 7 (Figure 2, Appendix F)',
    needs=Needs(labels_at='clients', views='weak'),
    objective=objectives.Supervised,
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'grouping_client_labels',
    'Some labels at clients, no server data, averages within S groups.',
    build_grouping_at_clients,
    AT_CLIENTS,
    source=f'{_PAPER}, Appendix H',
    needs=Needs(labels_at='dealt'),
    objective=objectives.SemiSupervised,
    makes_pseudo_labels=True,
  ),
)
