"""Which group a client is in: said by the sampler, or drawn in the process."""

import tensorflow as tf

from tff_ssl import randomness

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
