"""Clients in groups: who is in which, what they start from, how they meet.

The global weights of a process with S groups are the stack `[S, ...]` of the
group models; a client reads its row, trains, and its delta goes to its row of
the aggregate. A moving average of the global model is one more row, the last.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators, protocols, randomness, shared_settings
from tff_ssl.plans import Wiring
from tff_ssl.templates import (
  client_data,
  client_task,
  client_work,
  composition,
  local_training,
  stacks,
)
from tff_ssl.templates import memories as memories_lib
from tff_ssl.templates.server import moving_average


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
    """Returns a client's group, `int32`, and whether there is no such group.

    Args:
      task: The `ClientTask`.
    """
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
    """Returns the weights a client starts from, and whether it has none.

    Args:
      task: The `ClientTask`.
    """
    if self.start_model == 'slot':
      group = task.start_group
      invalid = stacks.is_missing(group, self.num_groups)
    else:
      group, invalid = self.group_of(task)
    return stacks.row(task.weights, group), invalid


def build_local_update(
  training: local_training.LocalTraining,
  grouping: Grouping,
  *,
  since_start: bool = False,
) -> Callable[
  [client_task.ClientTask], tuple[client_task.LocalUpdate, tf.Tensor]
]:
  """Returns the local update of a client that trains its group's model.

  Args:
    training: What the client does.
    grouping: How clients are grouped.
    since_start: Whether the delta is against the model that the client started
      from, which tells what it learnt, and not against that of its group.

  Returns:
    A function of a `ClientTask` that returns a `LocalUpdate` of weight 1 and
    the group. The delta is against the model of the client's group, wherever it
    started, so that the mean of a group's clients is its model plus the mean
    delta.
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
      result.metrics,
      invalid,
      result.optimizer_state,
      passes=result.passes,
      num_examples=result.num_examples,
    )
    return update, group

  return local_update


def average(
  group_models: protocols.Structure,
  aggregate: Mapping[str, Any],
  server: protocols.Structure | None = None,
  server_weight: float = 0.0,
) -> protocols.Structure:
  """Means of the clients' models within each group, with the server's or not.

  Zhang et al., Eq. 7: `w_avg,i = (n w_s + sum_{k in G_i} w_k) / (|G_i| + n)`,
  with n the server's weight.

  Args:
    group_models: Structure of `[S, ...]`, against which deltas are.
    aggregate: `mean`, structure of `[S, ...]`, the mean deltas, zero where a
      group has no clients; `weight`, `float32 [S]`, |G_i|.
    server: Structure of `[1, ...]` or `[S, ...]`, w_s; `None` if the server has
      no model of its own.
    server_weight: Weight of w_s in a group's mean; a client's is 1.

  Returns:
    Structure of `[S, ...]`, the new group models. The model of a group without
    clients becomes the server's; without a server it stays as it was.
  """
  members = tf.nest.map_structure(tf.add, group_models, aggregate['mean'])
  if server is None:
    return members
  weight = aggregate['weight']

  def join(member, own):
    count = tf.reshape(weight, [-1] + [1] * (member.shape.rank - 1))
    share = tf.cast(count / (count + server_weight), member.dtype)
    return share * member + (1 - share) * own

  return tf.nest.map_structure(join, members, server)


def around(
  members: protocols.Structure,
  centre: protocols.Structure,
  weight: tf.Tensor,
  server_weight: float,
) -> protocols.Structure:
  """Puts the groups around a model that the server trained from their mean.

  Groups differ from each other as they do after Eq. 7 of Zhang et al., which
  shrinks `m_i - m_j` by `|G_i| / (|G_i| + n)`, but their mean is the server's
  model: with one group there is nothing else.

  Args:
    members: Structure of `[S, ...]`, m_i, the groups' means of clients.
    centre: Structure of `[1, ...]`, w_s, or of `[S, ...]`, one for each group.
    weight: `float32 [S]`, |G_i|.
    server_weight: n.

  Returns:
    Structure of `[S, ...]`: w_s plus the shrunk deviation of each group.
  """

  def place(models, new):
    count = tf.reshape(weight, [-1] + [1] * (models.shape.rank - 1))
    share = tf.cast(count / (count + server_weight), models.dtype)
    deviation = share * (models - tf.reduce_mean(models, 0, keepdims=True))
    # Groups of unequal sizes shrink unequally.
    return new + deviation - tf.reduce_mean(deviation, 0, keepdims=True)

  return tf.nest.map_structure(place, members, centre)


def _is_mean_over_all(factory) -> bool:
  """Whether a factory knows nothing of groups, as far as one can tell."""
  own = (aggregators.CollectingFactory, aggregators.PrivateMeanFactory)
  is_of_tff = type(factory).__module__.startswith('tensorflow_federated')
  return is_of_tff or isinstance(factory, own)


def create_aggregator(
  factory: tff.aggregators.WeightedAggregationFactory | None,
  num_groups: int,
  update_type: tff.Type,
  weight_type: tff.Type,
  min_group_size: int = 1,
) -> tff.templates.AggregationProcess:
  """Creates the aggregator of clients' deltas by group.

  Args:
    factory: By default `GroupMeanFactory(num_groups)`. One of TFF's own means
      is put into that, as `mean_factory`, and so are this library's private
      mean and medians.
    num_groups: S.
    update_type: Of a client's update, `<value=delta, group=int32>`.
    weight_type: Of its weight.
    min_group_size: See `Wiring`.

  Returns:
    An aggregation process with the result `<mean=..., weight=float32[S]>`.

  Raises:
    TypeError: If the factory does not aggregate by group.
    ValueError: If an inner factory would make the means of groups wrong, or a
      factory of the caller's has groups of fewer members.
  """
  by_group = (
    "model_aggregator must be one of TFF's means, one of tff_ssl's medians, or "
    f'aggregate by group, as tff_ssl.GroupMeanFactory({num_groups}, ...) does, '
    f'but is {type(factory).__name__}'
  )
  try:
    if factory is None or _is_mean_over_all(factory):
      factory = aggregators.GroupMeanFactory(
        num_groups, mean_factory=factory, min_group_size=min_group_size
      )
    elif min_group_size > getattr(factory, 'min_group_size', 1):
      raise ValueError(
        f'min_group_size={min_group_size} does not reach the groups of a '
        f'{type(factory).__name__}: give it to '
        'tff_ssl.GroupMeanFactory(..., min_group_size=...).'
      )
    process = factory.create(update_type, weight_type)
  except TypeError as error:
    raise TypeError(f'{by_group}: {error}') from error
  aggregate = process.next.type_signature.result.result.member
  names = (
    [name for name, _ in tff.structure.iter_elements(aggregate)]
    if isinstance(aggregate, tff.StructType)
    else []
  )
  if names != ['mean', 'weight']:
    raise TypeError(f'{by_group}, whose result is {aggregate}.')
  return process


def compose(
  training: local_training.LocalTraining,
  grouping: Grouping,
  build_finalizer: Callable[..., tff.learning.templates.FinalizerProcess],
  *,
  data_spec: client_data.ClientDataSpec,
  wiring: Wiring,
  memories: tuple[memories_lib.Memory, ...] = (),
) -> composition.ComposedProcess:
  """Composes a process whose global weights are the stack of group models.

  Args:
    training: What a client does.
    grouping: How clients are grouped.
    build_finalizer: Called with `weights_type` and `aggregate_type`, the
      unplaced types of the group models and of the aggregator's result.
    data_spec: The type of the client data.
    wiring: Its `model_aggregator` is by default `GroupMeanFactory`.
    memories: What outlives a round, beside the weights.

  Returns:
    A process whose model weights are the mean of the group models, or its
    moving average. It can be measured, without a server.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and aggregator do not fit each other.
  """
  grouping.check_data(data_spec)
  data_spec.check_model(training.model)
  if grouping.ema_decay and wiring.ema_decay:
    raise ValueError(
      f'ema_decay={grouping.ema_decay} and wiring.ema_decay='
      f'{wiring.ema_decay} are two averages of one model: give the first.'
    )
  num_groups = grouping.num_groups
  initial = composition.initial_weights(training.model, wiring.seed)
  group_models = composition.stacked(initial, num_groups)

  def build_last(*, weights_type, aggregate_type):
    finalizer = build_finalizer(
      weights_type=group_models.type_signature.result,
      aggregate_type=aggregate_type,
    )
    if not grouping.ema_decay:
      return finalizer
    return moving_average.following(
      finalizer,
      grouping.ema_decay,
      weights_type=weights_type,
      model_of=stacks.mean,
    )

  process = composition.compose(
    composition.stacked(initial, grouping.num_rows),
    client_work.Clients(
      build_local_update(training, grouping),
      data_spec,
      training.initial_hparams,
      memories,
    ),
    create_aggregator=lambda update_type, weight_type: create_aggregator(
      wiring.model_aggregator,
      num_groups,
      update_type,
      weight_type,
      wiring.min_group_size,
    ),
    build_finalizer=build_last,
    wiring=wiring,
    idle_rounds=grouping.warmup_rounds,
    view=composition.ModelView(
      grouping.global_model,
      lambda weights, _: stacks.tile(weights, grouping.num_rows),
    ),
  )
  return process.with_parts(
    composition.Parts(
      training,
      build_local_update(training, grouping, since_start=True),
      lambda task: grouping.start_of(task)[0],
      data_spec,
      num_groups,
    )
  )
