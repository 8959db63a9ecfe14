"""Clients in groups: who is in which, what they start from, how they meet.

The global weights of a process with S groups are the stack `[S, ...]` of the
group models; a client reads its row, trains, and its delta goes to its row of
the aggregate. A moving average of the global model is one more row, the last.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import (
  aggregators,
  compat,
  protocols,
  randomness,
  shared_settings,
  stacks,
)
from tff_ssl.templates import (
  client_data,
  client_task,
  composition,
  faults,
  finalizers,
  moving_average,
)


@dataclasses.dataclass(frozen=True)
class Grouping:
  """How clients are grouped.

  Attributes:
    num_groups: S.
    assignment: Who assigns groups. 'sampler': the `group` of a client's context
      is its group. 'in_process': one is drawn uniformly with the client's seed.
    start_model: 'group': a client starts from the model of its group. 'slot':
      from that of the `start_group` of its context, its previous group.
    warmup_rounds: First rounds in which clients do nothing.
    anchors: What objectives compare with. 'start': the model that the client
      starts from. 'global': the global model, which the client received, too.
    ema_decay: Decay per round of the moving average of w_avg, in [0, 1), that
      is the global model; with 0 w_avg itself is.
  """

  num_groups: int
  assignment: str = 'sampler'
  start_model: str = 'group'
  warmup_rounds: int = 0
  anchors: str = 'start'
  ema_decay: float = 0.0

  def __post_init__(self):
    shared_settings.NUM_GROUPS.check(self.num_groups)
    shared_settings.GROUP_ASSIGNMENT.check(self.assignment)
    shared_settings.START_MODEL.check(self.start_model)
    shared_settings.EMA_DECAY.check(self.ema_decay)
    if self.start_model == 'slot' and self.assignment != 'sampler':
      raise ValueError(
        "start_model='slot' does not fit group_assignment="
        f'{self.assignment!r}: only the sampler knows the groups of the round '
        "before; use 'sampler'."
      )

  @property
  def num_rows(self) -> int:
    """Rows of the stack that is the process's global weights."""
    return self.num_groups + (1 if self.ema_decay else 0)

  def models(self, weights: protocols.Structure) -> protocols.Structure:
    """Returns the group models, `[S, ...]`, of the global weights."""
    return moving_average.models(weights) if self.ema_decay else weights

  def global_model(self, weights: protocols.Structure) -> protocols.Structure:
    """Returns the model that is evaluated, of the global weights."""
    if self.ema_decay:
      return moving_average.average(weights)
    return stacks.mean(weights)

  @property
  def view(self) -> composition.ModelView:
    """How the model that is evaluated lies in the global weights."""
    return composition.ModelView(
      self.global_model, lambda weights, _: stacks.tile(weights, self.num_rows)
    )

  def with_average(
    self,
    finalizer: tff.learning.templates.FinalizerProcess,
    weights_type: compat.Type,
  ) -> tff.learning.templates.FinalizerProcess:
    """Returns a finalizer of the group models for the global weights."""
    if not self.ema_decay:
      return finalizer
    return moving_average.keep_in_last_row(
      finalizer,
      self.ema_decay,
      weights_type=weights_type,
      model_of=stacks.mean,
    )

  def check_data(self, data_spec: client_data.ClientDataSpec) -> None:
    """Raises `TypeError` unless client data name groups where they must."""
    if (
      self.assignment == 'sampler'
      and self.num_groups > 1
      and not data_spec.in_context
    ):
      raise TypeError(
        "group_assignment='sampler' needs client data with a context that "
        'holds the group: use ClientDataSpec(..., in_context=True), or '
        "group_assignment='in_process' for plain client data."
      )
    data_spec.check_slots(start_model=self.start_model)

  def group_of(
    self, task: client_task.ClientTask
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a client's group, `int32`, and whether there is no such group."""
    if self.num_groups == 1:
      return tf.constant(0), tf.constant(False)
    if self.assignment == 'sampler':
      return task.group, stacks.is_missing(task.group, self.num_groups)
    group = tf.random.stateless_uniform(
      [],
      randomness.fold_in(task.client_seed, randomness.Purpose.DRAW_GROUP),
      maxval=self.num_groups,
      dtype=tf.int32,
    )
    return group, tf.constant(False)

  def start_of(
    self, task: client_task.ClientTask
  ) -> tuple[tff.learning.models.ModelWeights, tf.Tensor]:
    """Returns the weights a client starts from, and whether it has none."""
    if self.start_model == 'slot':
      group = task.start_group
      invalid = stacks.is_missing(group, self.num_groups)
    else:
      group, invalid = self.group_of(task)
    return stacks.row(task.weights, group), invalid


def _share_of_clients(weight, server_weight, models):
  """Returns |G_i| / (|G_i| + n), in a shape that goes with `models`."""
  count = stacks.per_row(weight, models)
  return tf.cast(count / (count + server_weight), models.dtype)


def average(
  group_models: protocols.Structure,
  aggregate: Mapping[str, Any],
  server: protocols.Structure | None = None,
  server_weight: float = 0.0,
) -> protocols.Structure:
  """Means of the clients' models within each group, with the server's or not.

  Zhang et al., Eq. 7: `w_avg,i = (n w_s + sum_{k in G_i} w_k) / (|G_i| + n)`,
  with n the server's weight.

  The model of a group without clients becomes the server's; without a server it
  stays as it was.

  Args:
    group_models: Structure of `[S, ...]`, against which deltas are.
    aggregate: `mean`, structure of `[S, ...]`, the mean deltas, zero where a
      group has no clients; `weight`, `float32 [S]`, |G_i|.
    server: Structure of `[1, ...]` or `[S, ...]`, w_s, if there is one.
    server_weight: n, where a client's weight is 1.
  """
  members = tf.nest.map_structure(tf.add, group_models, aggregate['mean'])
  if server is None:
    return members

  def join(member, own):
    share = _share_of_clients(aggregate['weight'], server_weight, member)
    return share * member + (1 - share) * own

  return tf.nest.map_structure(join, members, server)


def recentre(
  members: protocols.Structure,
  centre: protocols.Structure,
  weight: tf.Tensor,
  server_weight: float,
) -> protocols.Structure:
  """Moves the groups' mean to a model that the server trained from there.

  Groups differ from each other as they do after Eq. 7 of Zhang et al., which
  shrinks `m_i - m_j` by `|G_i| / (|G_i| + n)`, but their mean is the server's
  model: with one group there is nothing else.

  Args:
    members: Structure of `[S, ...]`, m_i, the groups' means of clients.
    centre: Structure of `[1, ...]`, w_s, or of `[S, ...]`, one for each group.
    weight: `float32 [S]`, |G_i|.
    server_weight: n.
  """

  def place(models, new):
    share = _share_of_clients(weight, server_weight, models)
    deviation = share * (models - tf.reduce_mean(models, 0, keepdims=True))
    # Groups of unequal sizes shrink unequally.
    return new + deviation - tf.reduce_mean(deviation, 0, keepdims=True)

  return tf.nest.map_structure(place, members, centre)


def with_momentum(
  finalizer: tff.learning.templates.FinalizerProcess,
  momentum: float,
  models_type: compat.Type,
) -> tff.learning.templates.FinalizerProcess:
  """Gives a finalizer the clients' averaged changes with momentum.

  SemiFL (Diao et al., arXiv 2106.01432) applies the mean of its clients'
  changes with momentum. Clients begin each round with momentum 0 and take few
  steps, so that a round's change is short; the server's momentum makes up for
  that. With groups, D_i is the mean change of group i, and all groups get the
  same more:

  ```
  v   <- beta_g v + 1/S sum_i D_i
  D_i <- D_i + beta_g v_old
  ```

  so that the mean of the groups' changes is v, as SemiFL's is with one group.
  Moving statistics change as the clients' do, without momentum, by which a
  moving variance could become negative. A change that is not finite reaches the
  finalizer as it is, and leaves v as it was.

  Args:
    finalizer: Takes the aggregate `<mean=ModelWeights, weight=...>`, stacks of
      S rows. The state of the new one holds v as `velocity`.
    momentum: beta_g, in [0, 1).
    models_type: Unplaced type of the group models.
  """
  spec = compat.type_to_tf_tensor_specs(models_type['trainable'])

  def no_velocity():
    zeros = tf.nest.map_structure(
      lambda leaf: tf.zeros(leaf.shape[1:], leaf.dtype), spec
    )
    return collections.OrderedDict(velocity=zeros)

  def push(kept, weights, aggregate):
    mean = aggregate['mean']
    pushed = tf.nest.map_structure(
      lambda change, old: change + tf.cast(momentum, old.dtype) * old,
      mean.trainable,
      kept['velocity'],
    )
    velocity = faults.choose(
      faults.all_finite(pushed), stacks.mean(pushed), kept['velocity']
    )
    changes = collections.OrderedDict(
      mean=tff.learning.models.ModelWeights(pushed, mean.non_trainable),
      weight=aggregate['weight'],
    )
    return collections.OrderedDict(velocity=velocity), weights, changes

  return finalizers.wrap_finalizer(finalizer, no_velocity, before=push)


def create_aggregator(
  factory: tff.aggregators.WeightedAggregationFactory
  | tff.aggregators.UnweightedAggregationFactory
  | None,
  num_groups: int,
  update_type: compat.Type,
  weight_type: compat.Type,
  min_group_size: int = 1,
) -> tff.templates.AggregationProcess:
  """Creates the aggregator of clients' deltas by group.

  The factory is a `GroupMeanFactory`, or any mean over clients, which is put
  into one as `mean_factory`. A client's update is `<value=delta, group=int32>`.

  A factory that is no mean is a `TypeError`, one that would make the means of
  groups wrong, or show groups of fewer members, a `ValueError`.
  """
  given = type(factory).__name__
  try:
    if not isinstance(factory, aggregators.GroupMeanFactory):
      factory = aggregators.GroupMeanFactory(
        num_groups, mean_factory=factory, min_group_size=min_group_size
      )
    elif min_group_size > factory.min_group_size:
      raise ValueError(
        f'min_group_size={min_group_size} does not reach the groups of a '
        'GroupMeanFactory: give it to '
        'tff_ssl.GroupMeanFactory(..., min_group_size=...).'
      )
    return factory.create(update_type, weight_type)
  except TypeError as error:
    raise TypeError(
      'model_aggregator must be a mean over clients, or a '
      f'tff_ssl.GroupMeanFactory({num_groups}, ...), but is {given}: {error}'
    ) from error
