"""Semi-supervised FL with grouping-based model averaging (Zhang et al.).

Zhang et al., Improving Semi-supervised Federated Learning by Reducing the
Gradient Diversity of Models (arXiv 2008.11364). Clients hold unlabelled data,
the server a few labelled examples. In round t, with S groups G_1 ... G_S of
participating clients:

```math
client k in G_i   w_k = T steps on L_k from w_avg,i          (Eq. 4, 5 or 6)
server            w_s = steps on L_s from w_avg              (Eq. 3)
group             w_avg,i <- (w_s + sum_{k in G_i} w_k) / (|G_i| + 1)   (Eq. 7)
all               w_avg <- 1/S sum_i w_avg,i                            (Eq. 7)
```

With S = 1 this is FedAvg with the server (Eq. 8). The global weights of the
process are the stack [S, ...] of the group models; its model weights, for
evaluation, are w_avg.

Every client receives all S models and keeps one, so the downlink is S models.
With equal groups w_avg = (S w_s + sum_k w_k) / (C + S): grouping also raises
the server's weight from 1/(C+1) to S/(C+S). A server weight of S with
`num_groups=1` is FedAvg with the same formula for w_avg, the control for that
effect.

Where the authors' code departs from their text, or says what it leaves open:

  * `start_model`: 'group' is the model of the client's present group, as in the
    code, where a slot never leaves its group; 'slot' is that of its previous
    group, as in the text, where groups change every round and w_avg,i goes to
    the previous members of G_i (a client that was in none takes its slot's).
  * `TrainingPlan.client_momentum`: 'reset' is fresh every round, as stateless
    clients have it; 'slot' stays with the slot, as in the code.
  * `ServerPlan.bn_statistics`: 'averaged' as all weights are; 'local' are the
    server's own, as in the code (of several replicas, their mean).
  * `ServerPlan.replicas`: 'one' update for all groups (Eq. 7); 'per_group' has
    its own batches and momentum for each, as in the code.
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
from tff_ssl.common.setting import without
from tff_ssl.objectives.supervised import CLASS_WEIGHTS
from tff_ssl.plans import ServerPlan, TrainingPlan, Wiring

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import optimizers, stacks, templates
  from tff_ssl.models import functional
  from tff_ssl.templates import client_task, finalizers, groups
  from tff_ssl.templates import server_training as training_at_server


CLIENT_TRAINING = TrainingPlan(batch_size=64, steps=16, client_momentum='reset')
_SERVER = ServerPlan(
  steps=16,
  order='beside',
  weight=1.0,
  global_momentum=0.0,
  warmup_rounds=0,
  replicas='one',
  bn_statistics='averaged',
)


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


def _server_start(plan, group_models, aggregate):
  """Returns what the server trains from: 'after', the clients come first."""
  if plan.order == 'after':
    group_models = groups.average(group_models, aggregate)
  return stacks.mean(group_models)


def _combine(plan, group_models, server_models, aggregate):
  """Returns the new group models, of those before and the server's."""
  if plan.order == 'after':
    new = groups.recentre(
      groups.average(group_models, aggregate),
      server_models,
      aggregate['weight'],
      plan.weight,
    )
  else:
    new = groups.average(group_models, aggregate, server_models, plan.weight)
    if plan.bn_statistics == 'averaged':
      return new
  # Statistics that are not averaged are the server's, in every group.
  own = tf.nest.map_structure(
    lambda average, value: tf.broadcast_to(value, tf.shape(average)),
    new.non_trainable,
    server_models.non_trainable,
  )
  return tff.learning.models.ModelWeights(new.trainable, own)


def _build_finalizer(plan, server, seed, **types):
  """Returns the finalizer in which the server trains and the models meet."""
  finalizer = training_at_server.build_server_training(
    server,
    functools.partial(_combine, plan),
    server_start=functools.partial(_server_start, plan),
    seed=seed,
    **types,
  )
  if not plan.global_momentum:
    return finalizer
  return groups.with_momentum(
    finalizer, plan.global_momentum, types['weights_type']
  )


def compose(
  training: templates.LocalTraining,
  grouping: groups.Grouping,
  build_finalizer: Callable[..., tff.learning.templates.FinalizerProcess],
  *,
  data_spec: templates.ClientDataSpec,
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
    wiring: See `build_grouping_ssfl`.
    server: How the server trains from w_avg, if it does.
  """
  grouping.check_data(data_spec)
  data_spec.check_model(training.model)
  initial = templates.initial_weights(training.model, wiring.seed)
  work = templates.build_client_work(
    build_local_update(training, grouping),
    templates.stacked(initial, grouping.num_rows),
    data_spec=data_spec,
    initial_hparams=training.initial_hparams,
    wiring=wiring,
    memories=templates.client_momentum(
      training.plan.client_momentum, data_spec, training.initial_optimizer_state
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
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  num_groups: int = 2,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = CLIENT_TRAINING,
  server: ServerPlan = _SERVER,
  group_assignment: str = 'sampler',
  start_model: str = 'group',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds the learning process of Eqs. 3-8.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    num_groups: S >= 1.
    client_objective: L_k; by default CRL (Eq. 4),
      `tff_ssl.ConsistencyRegularization(views)`, whose arguments are tau and
      `views_forward`.
    client_training: How a client trains; by default as in the paper: 16 steps
      (T) on minibatches of 64 (B), SGD with learning rate 0.03, Nesterov
      momentum 0.9 and coupled weight decay 1e-4, which starts afresh in each
      round. Clients and server share one clock: a schedule's global step
      advances by the server's steps per round, unless `steps_per_round` says
      otherwise.
    server: The server's labelled examples, and how it trains on them; the same
      default, on minibatches of the clients' size. By default the server trains
      beside the clients, from the first round on, one model for all groups,
      which counts as much as a client's, moving statistics included.
    group_assignment: 'sampler': `group` of the clients' context says it, which
      allows exactly equal groups. 'in_process': every client is put into a
      group at random, so that group sizes are binomial and client data need
      no context.
    start_model: 'group', or 'slot'; the client data name slots then
      (`ClientDataSpec.num_slots`).
    wiring: Distributor, aggregators and seed (`tff_ssl.Wiring`). The
      aggregator is by default `GroupMeanFactory(num_groups)`, into which one of
      TFF's means is put, for clipping, compression or secure sums. It says
      which are refused, and what differential privacy takes. In warm-up
      rounds an adaptive one rests. With `ema_decay`, an objective whose teacher
      is 'received' gets its labels from the average of w_avg, too, so that
      clients receive S + 1 models.

  Returns:
    A `tff.learning.templates.LearningProcess`. Its metrics hold
    `client_work/train`, `client_work/clients`, `aggregator/group_weights` and
    `finalizer/server`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and server data do not fit each other.
  """
  optimizer = optimizers.build_grouping_sgd()
  client_plan = client_training.over(CLIENT_TRAINING, optimizer=optimizer)
  plan = server.over(
    _SERVER, optimizer=optimizer, batch_size=client_plan.batch_size
  )
  if plan.global_momentum and plan.order != 'after':
    raise ValueError(
      f'global_momentum={plan.global_momentum} does not fit order='
      f'{plan.order!r}, where the server model is in the average: use '
      "order='after', or global_momentum=0."
    )
  training = training_at_server.ServerTraining.of(
    plan,
    model,
    views,
    num_replicas=num_groups if plan.replicas == 'per_group' else 1,
  )
  objective = client_objective or objectives.ConsistencyRegularization(views)
  clients = templates.LocalTraining(
    model, objective, client_plan.on_clock_of(plan)
  )
  # A received teacher is the global model, which clients get besides that of
  # their group, and which the server has just trained.
  teacher = getattr(objective, 'teacher', None)
  grouping = groups.Grouping(
    num_groups,
    group_assignment,
    start_model,
    plan.warmup_rounds,
    'global' if teacher == 'received' else 'start',
    wiring.ema_decay or 0.0,
  )
  return compose(
    clients,
    grouping,
    functools.partial(_build_finalizer, plan, training, wiring.seed),
    data_spec=data_spec,
    # The average is a row of the stack, since clients may receive it.
    wiring=dataclasses.replace(wiring, ema_decay=None),
    server=training,
  )


@tff_arguments.taken
def build_grouping_at_clients(
  model: functional.FunctionalModel,
  *,
  data_spec: templates.ClientDataSpec,
  views: protocols.Views,
  num_groups: int = 2,
  client_objective: protocols.Objective | None = None,
  client_training: TrainingPlan = CLIENT_TRAINING,
  group_assignment: str = 'sampler',
  start_model: str = 'group',
  wiring: Wiring = Wiring(),
) -> tff.learning.templates.LearningProcess:
  """Builds grouping where clients hold some labels, and the server no data.

  It averages within groups only (Zhang et al., Appendix H),

  ```math
  group   w_avg,i <- sum_{k in G_i} w_k / |G_i|
  ```

  A group without usable clients keeps its model. `num_groups=1` is FedAvg with
  uniform weights.

  Args:
    model: A `tff_ssl.FunctionalModel`.
    data_spec: The type of client data, a `tff_ssl.ClientDataSpec`.
    views: Augmentation, as `tff_ssl.ImageViews`.
    num_groups: S >= 1.
    client_objective: L_k; by default that of Appendix H,
      `tff_ssl.SemiSupervised(views)`: the server's loss, Eq. 3, on the client's
      labelled examples, and CRL, Eq. 4, on all of them.
    client_training: As in `build_grouping_ssfl`, with as many labelled examples
      beside each minibatch.
    group_assignment: As in `build_grouping_ssfl`.
    start_model: As in `build_grouping_ssfl`.
    wiring: As in `build_grouping_ssfl`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and aggregator do not fit each other.
  """
  training = templates.LocalTraining(
    model,
    client_objective or objectives.SemiSupervised(views),
    client_training.over(
      CLIENT_TRAINING, optimizer=optimizers.build_grouping_sgd()
    ),
  )
  return compose(
    training,
    groups.Grouping(num_groups, group_assignment, start_model),
    functools.partial(finalizers.build_no_server_training, groups.average),
    data_spec=data_spec,
    wiring=wiring,
  )


SLOTS = (shared.START_MODEL, shared.CLIENT_MOMENTUM)


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
  *shared.SERVER,
  shared.EMA_DECAY,
  CLASS_WEIGHTS,
)
SPECS = (
  ProcessSpec(
    'grouping',
    'CRL at clients, labels at the server, averages within S groups.',
    build_grouping_ssfl,
    (
      shared.NUM_GROUPS,
      *objectives.ConsistencyRegularization.settings,
      *shared.LOCAL,
      *SLOTS,
      *shared.SERVER,
      shared.SERVER_REPLICAS,
      shared.EMA_DECAY,
      CLASS_WEIGHTS,
    ),
    source=f'{_PAPER}, Eqs. 3, 4 and 7',
    objective=objectives.ConsistencyRegularization,
    makes_pseudo_labels=True,
    exceptions={'copies_count_as_one': _SERVER_COUNTS},
  ),
  ProcessSpec(
    'fedavg_ssfl',
    'FedAvg with the server: grouping with one group (S = 1).',
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
    'Self-training on weak views at clients, FedAvg with the server.',
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
  ),
  ProcessSpec(
    'grouping_supervised',
    'The upper bound: all labels at clients, and the server data.',
    build_grouping_ssfl,
    (
      *(shared.NUM_GROUPS, *shared.LOCAL, *SLOTS, *shared.SERVER),
      *(shared.SERVER_REPLICAS, shared.EMA_DECAY, CLASS_WEIGHTS),
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
    (
      shared.NUM_GROUPS,
      *without(objectives.SemiSupervised.settings, 'temperature'),
      shared.LABELLED_BATCH_SIZE,
      *shared.LOCAL,
      *SLOTS,
    ),
    source=f'{_PAPER}, Appendix H',
    needs=Needs(labels_at='dealt'),
    objective=objectives.SemiSupervised,
    makes_pseudo_labels=True,
  ),
)
