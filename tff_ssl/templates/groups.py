"""Clients in groups: who is in which, what they start from, how they meet.

The global weights of a process with S groups are the stack `[S, ...]` of the
group models; a client reads its row, trains, and its delta goes to its row of
the aggregate.
"""

import functools

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators, checks, randomness
from tff_ssl.templates import (
  averaging,
  client_work,
  composition,
  local_training,
  slots,
  stacks,
)


def check_assignment(assignment: str, num_groups: int, data_spec) -> None:
  """Checks how clients get into groups.

  Args:
    assignment: 'sampler' or 'in_process'.
    num_groups: S.
    data_spec: `ClientDataSpec`, the type of client data.

  Raises:
    ValueError: If `assignment` is unknown.
    TypeError: If the sampler has no place to write the group to.
  """
  checks.choice(group_assignment=assignment)
  if assignment == 'sampler' and num_groups > 1 and not data_spec.in_context:
    raise TypeError(
      "group_assignment='sampler' needs client data with a context that holds "
      'the group: use ClientDataSpec(..., in_context=True), or '
      "group_assignment='in_process' for plain client data."
    )


def group_of_client(
  task, num_groups: int, assignment: str
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns a client's group, `int32`, and whether there is no such group.

  Args:
    task: The `ClientTask`.
    num_groups: S.
    assignment: 'sampler': the group of the client's context; 'in_process': one
      drawn uniformly with the client's seed.
  """
  if num_groups == 1:
    return tf.constant(0), tf.constant(False)
  if assignment == 'sampler':
    return task.group, stacks.is_missing(task.group, num_groups)
  group = tf.random.stateless_uniform(
    [],
    randomness.fold_in(task.client_seed, randomness.Purpose.DRAW_GROUP),
    maxval=num_groups,
    dtype=tf.int32,
  )
  return group, tf.constant(False)


def check_slots(
  assignment: str,
  start_model: str,
  client_momentum: str,
  num_slots: int | None,
  data_spec,
) -> None:
  """Checks what of a slot outlives a round.

  Args:
    assignment: Who assigns groups.
    start_model: 'group' or 'slot'.
    client_momentum: 'reset' or 'slot'.
    num_slots: C, where momentum stays with the slot.
    data_spec: `ClientDataSpec`, the type of client data.

  Raises:
    ValueError: If a value is unknown, missing or unused.
    TypeError: If the client data do not name slots where they must.
  """
  checks.choice(start_model=start_model)
  slots.check_momentum(client_momentum, num_slots, data_spec)
  if start_model == 'slot' and assignment != 'sampler':
    raise ValueError(
      f"start_model='slot' does not fit group_assignment={assignment!r}: only "
      "the sampler knows the groups of the round before; use 'sampler'."
    )
  slots.check_data(data_spec, start_model=start_model)


def start_of(
  task, num_groups: int, *, assignment: str, start_model: str
) -> tuple[tff.learning.models.ModelWeights, tf.Tensor]:
  """Returns the weights a client starts from, and whether it has none.

  Args:
    task: The `ClientTask`.
    num_groups: S.
    assignment: Who assigns groups; see `group_of_client`.
    start_model: See `build_local_update`.
  """
  if start_model == 'slot':
    group = task.start_group
    invalid = stacks.is_missing(group, num_groups)
  else:
    group, invalid = group_of_client(task, num_groups, assignment)
  return stacks.row(task.weights, group), invalid


def build_local_update(
  training: local_training.LocalTraining,
  num_groups: int,
  *,
  assignment: str = 'sampler',
  start_model: str = 'group',
  client_momentum: str = 'reset',
  warmup_rounds: int = 0,
  since_start: bool = False,
):
  """Returns the local update of a client that trains its group's model.

  Args:
    training: What the client does.
    num_groups: S.
    assignment: Who assigns groups; see `group_of_client`.
    start_model: 'group': the model of the client's group. 'slot': that of the
      group which the context calls `start_group`, the client's previous one.
    client_momentum: 'reset': a fresh optimizer state. 'slot': the one that the
      slot's client of the round before left.
    warmup_rounds: First rounds in which clients do nothing.
    since_start: Whether the delta is against the model that the client started
      from, which tells what it learnt, and not against that of its group.

  Returns:
    A function of a `ClientTask` that returns a `LocalUpdate` of weight 1 and
    the group. The delta is against the model of the client's group, wherever it
    started, so that the mean of a group's clients is its model plus the mean
    delta.
  """

  def local_update(task):
    group, invalid = group_of_client(task, num_groups, assignment)
    own = stacks.row(task.weights, group)
    start, start_invalid = start_of(
      task, num_groups, assignment=assignment, start_model=start_model
    )
    invalid |= start_invalid
    joined = task.round >= warmup_rounds
    result = averaging.run_training(
      training,
      task,
      start=start,
      optimizer_state=(task.slot_state if client_momentum == 'slot' else None),
      active=joined & ~invalid,
    )
    update = client_work.LocalUpdate(
      client_work.subtract(result.weights, start if since_start else own),
      tf.cast(joined, tf.float32),
      result.metrics,
      invalid,
      result.optimizer_state,
      passes=result.passes,
    )
    return update, group

  return local_update


def average(group_models, aggregate, server=None, server_weight: float = 0.0):
  """Means of the clients' models within each group, with the server's or not.

  Paper 1, Eq. 7: `w_avg,i = (n w_s + sum_{k in G_i} w_k) / (|G_i| + n)`, with n
  the server's weight.

  Args:
    group_models: Structure of `[S, ...]`, against which deltas are.
    aggregate: `mean`, structure of `[S, ...]`, the mean deltas, zero where a
      group has no clients; `weight`, `float32 [S]`, |G_i|.
    server: Structure of `[1, ...]` or `[S, ...]`, w_s; None where there is no
      server model.
    server_weight: Weight of w_s in a group's mean; a client's is 1.

  Returns:
    Structure of `[S, ...]`, the new group models. One without clients becomes
    the server's model; where there is none it stays as it was.
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


def create_aggregator(
  factory: tff.aggregators.WeightedAggregationFactory | None,
  num_groups: int,
  work: tff.learning.templates.ClientWorkProcess,
) -> tff.templates.AggregationProcess:
  """Creates the aggregator of clients' deltas by group.

  Args:
    factory: By default `GroupMeanFactory(num_groups)`.
    num_groups: S.
    work: The client work, whose results are `<value=delta, group=int32>`.

  Returns:
    An aggregation process with the result `<mean=..., weight=float32[S]>`.

  Raises:
    TypeError: If the factory does not aggregate by group.
    ValueError: If an inner factory would make the means of groups wrong.
  """
  result = work.next.type_signature.result.result.member
  by_group = (
    'model_aggregator must aggregate by group, as tff_ssl.GroupMeanFactory('
    f'{num_groups}, mean_factory=...) does with an inner factory, but is '
    f'{type(factory).__name__}'
  )
  try:
    process = (factory or aggregators.GroupMeanFactory(num_groups)).create(
      result.update, result.update_weight
    )
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
  build_finalizer,
  *,
  num_groups: int,
  assignment: str,
  start_model: str = 'group',
  client_momentum: str = 'reset',
  num_slots: int | None = None,
  warmup_rounds: int = 0,
  server=None,
  data_spec,
  model_distributor,
  model_aggregator,
  metrics_aggregator,
  seed: int,
) -> tff.learning.templates.LearningProcess:
  """Composes a process whose global weights are the stack of group models.

  Args:
    training: What a client does.
    build_finalizer: Called with `weights_type` and `aggregate_type`, the
      unplaced types of the stack and of the aggregator's result.
    num_groups: S.
    assignment: Who assigns groups; see `group_of_client`.
    start_model: See `build_local_update`.
    client_momentum: See `build_local_update`.
    num_slots: C, where momentum stays with the slot.
    warmup_rounds: First rounds in which clients do nothing.
    server: The `ServerTraining`, where there is one.
    data_spec: `ClientDataSpec`, the type of client data.
    model_distributor: As in the builders of `tff_ssl.algorithms`.
    model_aggregator: Likewise.
    metrics_aggregator: Likewise.
    seed: Root of all randomness.

  Returns:
    A `tff.learning.templates.LearningProcess`; its model weights are the mean
    of the group models.

  Raises:
    ValueError: If an argument is out of range.
    TypeError: If model, client data and aggregator do not fit each other.
  """
  check_assignment(assignment, num_groups, data_spec)
  check_slots(assignment, start_model, client_momentum, num_slots, data_spec)
  data_spec.check_model(training.model)
  initial_weights = composition.stack_computation(
    composition.initial_weights_computation(training.model, seed), num_groups
  )
  stack_type = initial_weights.type_signature.result
  update_of = functools.partial(
    build_local_update,
    training,
    num_groups,
    assignment=assignment,
    start_model=start_model,
    client_momentum=client_momentum,
    warmup_rounds=warmup_rounds,
  )
  work = client_work.build_client_work(
    update_of(),
    data_spec=data_spec,
    weights_type=stack_type,
    initial_hparams=training.initial_hparams,
    num_slots=num_slots or 0,
    initial_slot_state=training.initial_optimizer_state,
    metrics_aggregator=metrics_aggregator,
  )
  aggregator = aggregators.rest_in_first_rounds(
    create_aggregator(model_aggregator, num_groups, work), warmup_rounds
  )
  return composition.compose(
    initial_weights,
    seed=seed,
    distributor=model_distributor,
    client_work=work,
    aggregator=aggregator,
    finalizer=build_finalizer(
      weights_type=stack_type,
      aggregate_type=aggregator.next.type_signature.result.result.member,
    ),
    to_model_weights=stacks.mean,
    from_model_weights=lambda weights, _: stacks.tile(weights, num_groups),
    parts=composition.Parts(
      training,
      update_of(since_start=True),
      lambda task: start_of(
        task, num_groups, assignment=assignment, start_model=start_model
      )[0],
      data_spec,
      stack_type,
      num_groups,
      server,
      stacks.mean,
    ),
  )
