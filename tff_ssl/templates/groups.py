"""Which group a client is in: said by the sampler, or drawn in the process."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import aggregators, randomness

ASSIGNMENTS = ('sampler', 'in_process')

# Purpose of the seed that draws a group; training uses 0 and 1.
_DRAW_GROUP = 2


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
  if assignment not in ASSIGNMENTS:
    raise ValueError(
      f'group_assignment must be one of {ASSIGNMENTS}, but is {assignment!r}.'
    )
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
    return task.group, (task.group < 0) | (task.group >= num_groups)
  group = tf.random.stateless_uniform(
    [],
    randomness.fold_in(task.client_seed, _DRAW_GROUP),
    maxval=num_groups,
    dtype=tf.int32,
  )
  return group, tf.constant(False)


def create_aggregator(
  factory: tff.aggregators.WeightedAggregationFactory | None,
  num_groups: int,
  client_work: tff.learning.templates.ClientWorkProcess,
) -> tff.templates.AggregationProcess:
  """Creates the aggregator of clients' deltas by group.

  Args:
    factory: By default `GroupMeanFactory(num_groups)`.
    num_groups: S.
    client_work: Whose results, `<value=delta, group=int32>`, are aggregated.

  Returns:
    An aggregation process with the result `<mean=..., weight=float32[S]>`.

  Raises:
    TypeError: If the factory does not aggregate by group.
  """
  result = client_work.next.type_signature.result.result.member
  by_group = (
    'model_aggregator must aggregate by group, as tff_ssl.GroupMeanFactory('
    f'{num_groups}, value_sum_factory=...) does with inner factories, but is '
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
