"""Semi-supervised FL with grouping-based model averaging (paper 1).

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

A client starts from the model of the group that it is in *now*, as the authors'
code has it (the text sends w_avg,i to the previous members of G_i). Every
client receives all S models and keeps one, so the downlink is S models.

With equal groups w_avg = (S w_s + sum_k w_k) / (C + S): grouping also raises
the server's weight from 1/(C+1) to S/(C+S). `server_weight=S` with
`num_groups=1` is FedAvg with the same formula for w_avg, the control for that
effect.

In the authors' code every group trains a server replica of its own, and
momentum stays with a client's slot across rounds. Here the server trains once a
round and keeps its optimizer state across rounds; clients start with a fresh
one.
"""

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, objectives, optimizers
from tff_ssl.templates import client_work as client_work_lib
from tff_ssl.templates import (
  composition,
  finalizers,
  groups,
  local_training,
)


def build_grouping_ssfl(
  model,
  *,
  server_data: tff.Computation,
  data_spec,
  views,
  num_groups: int = 2,
  threshold: float = 0.95,
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
  group_assignment: str = 'sampler',
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
    threshold: tau in Eqs. 4 and 5.
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
    group_assignment: 'sampler': `group` of the clients' context says it, which
      allows exactly equal groups. 'in_process': every client is put into a
      group at random, so that group sizes are binomial and client data need
      no context.
    schedule: Function of the global step to a factor on both learning rates.
      The step advances by `local_steps` a round; with `local_epochs`, by
      `server_steps`.
    model_distributor: By default the broadcast of weights, round and seed.
    model_aggregator: By default `GroupMeanFactory(num_groups)`; give one with
      other inner factories for clipping, noise, compression or secure sums.
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
  checks.integers_at_least(
    1,
    num_groups=num_groups,
    batch_size=batch_size,
    local_steps=local_steps,
    local_epochs=local_epochs,
    server_batch_size=server_batch_size,
    server_steps=server_steps,
  )
  checks.integers_at_least(0, server_warmup_rounds=server_warmup_rounds)
  checks.numbers_at_least(0, above=True, server_weight=server_weight)
  groups.check_assignment(group_assignment, num_groups, data_spec)
  data_spec.check_model(model)

  client_training = local_training.LocalTraining(
    model,
    client_objective or objectives.ConsistencyRegularization(views, threshold),
    client_optimizer or optimizers.build_paper_sgd(),
    batch_size,
    **local_training.steps_or_epochs(local_steps, local_epochs),
    schedule=schedule,
    steps_per_round=None if local_epochs is None else server_steps,
  )
  server = finalizers.ServerTraining(
    local_training.LocalTraining(
      model,
      objectives.Supervised(views),
      server_optimizer or optimizers.build_paper_sgd(),
      batch_size if server_batch_size is None else server_batch_size,
      steps=server_steps,
      schedule=schedule,
    ),
    server_data,
  )

  def local_update(task):
    group, invalid = groups.group_of_client(task, num_groups, group_assignment)
    row = tf.clip_by_value(group, 0, num_groups - 1)
    start = tf.nest.map_structure(lambda stack: stack[row], task.weights)
    joined = task.round >= server_warmup_rounds
    result = client_training.run(
      start,
      task.examples,
      seed=task.client_seed,
      round_num=task.round,
      hparams=task.hparams,
      active=joined & ~invalid,
    )
    update = client_work_lib.LocalUpdate(
      client_work_lib.subtract(result.weights, start),
      tf.cast(joined, tf.float32),
      result.metrics,
      invalid,
    )
    return update, group

  def combine(stack, server_weights, aggregate):
    return tf.nest.map_structure(
      lambda start, own, delta: group_average(
        start, own, delta, aggregate['weight'], server_weight
      ),
      stack,
      server_weights,
      aggregate['mean'],
    )

  initial_weights = composition.stack_computation(
    composition.initial_weights_computation(model, seed), num_groups
  )
  stack_type = initial_weights.type_signature.result
  client_work = client_work_lib.build_client_work(
    local_update,
    data_spec=data_spec,
    weights_type=stack_type,
    initial_hparams=client_training.initial_hparams,
    metrics_aggregator=metrics_aggregator,
  )
  aggregator = groups.create_aggregator(
    model_aggregator, num_groups, client_work
  )
  return composition.compose(
    initial_weights,
    seed=seed,
    distributor=model_distributor,
    client_work=client_work,
    aggregator=aggregator,
    finalizer=finalizers.build_server_training(
      server,
      combine,
      server_start=composition.mean_of_stack,
      weights_type=stack_type,
      aggregate_type=aggregator.next.type_signature.result.result.member,
      seed=seed,
    ),
    to_model_weights=composition.mean_of_stack,
    from_model_weights=lambda weights: composition.tile(weights, num_groups),
  )


def group_average(start, server, mean_delta, count, server_weight):
  """Eq. 7 for all groups at once, for one weight tensor.

  Args:
    start: `[S, ...]`, the group models that clients started from.
    server: `[...]`, w_s.
    mean_delta: `[S, ...]`, mean of w_k - w_avg,i over the clients of a group.
    count: `float32 [S]`, |G_i|; an empty group becomes the server model.
    server_weight: Weight of w_s in a group's mean.

  Returns:
    `[S, ...]`, the new group models.
  """
  count = tf.reshape(count, [-1] + [1] * server.shape.rank)
  share = tf.cast(count / (count + server_weight), server.dtype)
  return share * (start + mean_delta) + (1 - share) * server
