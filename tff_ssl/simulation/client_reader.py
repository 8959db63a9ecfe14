"""Joins a learning process with a reader of client data.

In a simulation nothing bigger than a key should cross from Python into TFF each
round: shipping a client's images costs more than a small model's training on
them. A reader is a `tff.Computation` from a client's index to its examples; it
runs on the worker, in the same TensorFlow graph as the client's training.
"""

import collections
import os

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.simulation import client_sampling
from tff_ssl.simulation.divided_context import DividedContext


def compose_with_reader(
  process: tff.learning.templates.LearningProcess, reader: tff.Computation
) -> tff.learning.templates.LearningProcess:
  """Returns `process` with client keys in place of client data.

  Args:
    process: A learning process of this library, or any other whose client data
      are what `reader` returns.
    reader: `(int32 -> D)`, from a client's index to its examples.

  Returns:
    A `tff.learning.templates.LearningProcess` whose `next` takes
    `{int32[2]}@CLIENTS`, keys of `tff_ssl.simulation.client_sampling`.

  Raises:
    TypeError: If the reader does not return what the process takes.
  """
  data_type = process.next.type_signature.parameter[1].member
  in_context = isinstance(data_type, tff.StructType)

  @tff.tensorflow.computation(client_sampling.KEY_TYPE)
  def read(key):
    examples = reader(key[0])
    if not in_context:
      return examples
    context = collections.OrderedDict(client=key[0], group=key[1])
    return collections.OrderedDict(
      examples=examples, context=tf.data.Dataset.from_tensors(context)
    )

  if not data_type.is_assignable_from(read.type_signature.result):
    raise TypeError(
      f'The reader gives {read.type_signature.result}, but the process takes '
      f'{data_type}: build the process with the data_spec of the reader.'
    )

  state_type = process.next.type_signature.parameter[0]
  keys_type = tff.FederatedType(client_sampling.KEY_TYPE, tff.CLIENTS)

  @tff.federated_computation(state_type, keys_type)
  def read_then_next(state, keys):
    return process.next(state, tff.federated_map(read, keys))

  # In this form all that a client does is one TensorFlow graph. As two, the
  # dataset would be serialized on its way from the first to the second, which
  # costs milliseconds per client and memory of the worker that is never freed.
  forms = tff.backends.mapreduce
  one_graph = forms.get_computation_for_distribute_aggregate_form(
    forms.get_distribute_aggregate_form_for_computation(read_then_next)
  )

  # The form forgets Python's containers, such as the state's named tuple.
  @tff.tensorflow.computation(state_type.member)
  def with_containers(state):
    return state

  @tff.federated_computation(state_type, keys_type)
  def next_fn(state, keys):
    state, metrics = one_graph(state, keys)
    return tff.learning.templates.LearningProcessOutput(
      tff.federated_map(with_containers, state), metrics
    )

  return tff.learning.templates.LearningProcess(
    process.initialize,
    next_fn,
    process.get_model_weights,
    process.set_model_weights,
    get_hparams_fn=process.get_hparams,
    set_hparams_fn=process.set_hparams,
  )


def check_readable(path: str | os.PathLike[str], context: DividedContext):
  """Checks that every worker can read a file that readers will read.

  Args:
    path: The file's path, which is the same on all machines.
    context: The workers.

  Raises:
    RuntimeError: If one cannot, with its name.
  """

  @tff.tensorflow.computation
  def read_a_byte():
    # `tf.io.read_file` would read all of it.
    dataset = tf.data.FixedLengthRecordDataset(os.fspath(path), 1)
    return dataset.take(1).get_single_element()

  try:
    context.run_on_each(read_a_byte)
  except RuntimeError as error:
    raise RuntimeError(
      f'A worker cannot read {path} ({error}): the file must lie at the same '
      'path on its machine, as on a shared disk.'
    ) from error
