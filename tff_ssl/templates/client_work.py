"""From a local update to a `tff.learning.templates.ClientWorkProcess`."""

import collections
import inspect
import math
from collections.abc import Callable, Sequence

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat, protocols
from tff_ssl.aggregators import inspection
from tff_ssl.plans import Wiring
from tff_ssl.templates import (
  client_data,
  client_task,
  faults,
  memories,
)

# The metric of examples processed, which is a sum, as in TFF.
_NUM_EXAMPLES = 'num_examples'


class ClientWork(tff.learning.templates.ClientWorkProcess):
  """A client work process, with what composing it needs to know.

  Attributes:
    initial: `( -> W)`, the initial global weights.
    in_the_clear: What the server sums in the clear for memories, in words.
  """

  def __init__(self, initialize, next_fn, initial, memories):
    state_type = initialize.type_signature.result.member
    super().__init__(
      initialize,
      next_fn,
      get_hparams_fn=tff.tensorflow.computation(
        lambda state: state['hparams'], state_type
      ),
      set_hparams_fn=tff.tensorflow.computation(
        lambda state, hparams: collections.OrderedDict(state, hparams=hparams),
        (state_type, state_type['hparams']),
      ),
    )
    self.initial = initial
    self.in_the_clear = ' and '.join(
      memory.in_the_clear for memory in memories if memory.in_the_clear
    )


def build_client_work(
  local_update: client_task.LocalWork,
  initial: compat.Computation,
  *,
  data_spec: client_data.ClientDataSpec,
  initial_hparams: Callable[[], protocols.Hparams],
  wiring: Wiring,
  memories: Sequence[memories.Memory] = (),
  tag_name: str = 'group',
) -> ClientWork:
  """Makes a client work process out of what one client does.

  A client is left out if the norm of its delta, its weight, metrics or examples
  are not all finite, if its group or slot does not exist, or if it has no
  examples. Its delta, weight and metrics are zeroed then, and it is counted in
  the metrics `clients`.

  The four numbers in `clients`, how many took part, were empty, not finite or
  invalid, are summed securely where the metrics are; otherwise their sums reach
  the server in the clear. So do, always, the sums that memories at the server
  are made of.

  If examples are counted, the metric `num_examples` is their sum, as in TFF.
  If passes are counted, the metrics `forward_passes` and `backward_passes` are
  their means over the clients that computed anything.

  Args:
    local_update: What a client does.
    initial: `( -> W)`, the initial global weights.
    data_spec: The type of the client data.
    initial_hparams: Returns the client optimizer's hyperparameters.
    wiring: Says how metrics meet, for how many clients they are shown (with
      fewer they are NaN, and 0 where they are integers), how much a client may
      weigh, and what goes wrong.
    memories: What outlives a round, beside the weights.
    tag_name: What the aggregator knows the tag by.

  Returns:
    Its state holds the optimizer's `hparams` and the fields of the memories.
    Its update is `delta`, or `<value=delta, TAG_NAME=tag>` if there is a tag.
    Its measurements are `<train=..., clients=<participating, empty,
    non_finite, invalid>>`.
  """
  local_update = _as_wired(local_update, wiring, data_spec, initial)
  # Others leave nothing at the server, and need no field of its state.
  at_server = [memory for memory in memories if memory.field is not None]

  initial_state = tff.tensorflow.computation(
    lambda: _initial_state(initial_hparams, at_server)
  )
  state_type = initial_state.type_signature.result

  @tff.tensorflow.computation(state_type)
  def to_send(state):
    sent = [(one.field, one.send(state[one.field])) for one in at_server]
    return collections.OrderedDict([('hparams', state['hparams']), *sent])

  message_type = client_task.message_type(initial.type_signature.result)

  @tff.tensorflow.computation(
    message_type, to_send.type_signature.result, data_spec.type
  )
  def work(message, sent, data):
    task = client_task.read_task(message, sent['hparams'], data, data_spec)
    return _work(local_update, task, sent, memories, tag_name)

  _, metrics_type, _, sums_type = work.type_signature.result
  measure = _build_measure(wiring, metrics_type)

  @tff.tensorflow.computation(state_type, sums_type)
  def merge(state, sums):
    for memory in at_server:
      field = memory.field
      state[field] = memory.merge(state[field], sums[field])
    return state

  @compat.federated_computation
  def initialize():
    return compat.federated_eval(initial_state, compat.SERVER)

  @compat.federated_computation(
    initialize.type_signature.result,
    compat.FederatedType(message_type, compat.CLIENTS),
    compat.FederatedType(data_spec.type, compat.CLIENTS),
  )
  def next_fn(state, message, data):
    # Without memories, a call of a computation is saved.
    sent = compat.federated_map(to_send, state) if memories else state
    result, metrics, counts, sums = compat.federated_map(
      work, (message, compat.federated_broadcast(sent), data)
    )
    if at_server:
      state = compat.federated_map(merge, (state, compat.federated_sum(sums)))
    return tff.templates.MeasuredProcessOutput(
      state, result, measure(metrics, counts)
    )

  return ClientWork(initialize, next_fn, initial, memories)


def _work(local_update, task, sent, memories, tag_name):
  """Returns a client's result, metrics, counts, and what memories sum up."""
  missing = tf.constant(False)
  for memory in memories:
    task, has_no_place = memory.read(task, sent.get(memory.field))
    missing |= has_no_place

  update, tag = local_update(task)
  training = update.result._replace(metrics=_reported(update.result))
  update = update._replace(result=training, invalid=update.invalid | missing)
  reasons, usable = faults.find_faults(
    update, task.examples, training.shared_change
  )
  sums, written = collections.OrderedDict(), []
  for memory in memories:
    left, operations = memory.leave(task, update, usable)
    written += operations
    if memory.field is not None:
      sums[memory.field] = left

  sent_back = faults.zero_unless(
    usable, (update.delta, update.weight, training.metrics)
  )
  # A state that nothing waits for would not be written.
  with tf.control_dependencies(written):
    delta, weight, metrics = tf.nest.map_structure(tf.identity, sent_back)
  counts = tf.nest.map_structure(
    lambda flag: tf.cast(flag, tf.int32),
    collections.OrderedDict(participating=weight > 0, **reasons),
  )
  # The tag is not zeroed: a client that is left out has no weight anywhere.
  if tag is not None:
    delta = collections.OrderedDict([('value', delta), (tag_name, tag)])
  result = tff.learning.templates.ClientResult(delta, weight)
  return result, metrics, counts, sums


def _as_wired(local_update, wiring, data_spec, initial):
  """Returns the update of clients of bounded weight, which may be corrupt."""
  if wiring.corruption is not None:
    local_update = faults.with_corrupt_clients(
      local_update, wiring.corruption, data_spec, initial
    )
  if wiring.max_client_weight is None:
    return local_update

  def bounded(task):
    update, tag = local_update(task)
    weight = update.weight
    capped = tf.clip_by_value(weight, 0.0, wiring.max_client_weight)
    # One that is not finite stays so: such a client is left out.
    weight = tf.where(tf.math.is_finite(weight), capped, weight)
    return update._replace(weight=weight), tag

  return bounded


def _initial_state(initial_hparams, at_server):
  state = collections.OrderedDict(hparams=initial_hparams())
  for memory in at_server:
    if memory.field in state:
      raise ValueError(
        f'{type(memory).__name__} keeps {memory.field!r}, as something before '
        'it does: give each of the memories a field of its own.'
      )
    state[memory.field] = memory.initial()
  return state


def _reported(result) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns all metrics of a client, with those of its passes."""
  # TFF's secure sums take pairs of tensors for bounds.
  metrics = collections.OrderedDict(
    (name, tf.convert_to_tensor(pair)) for name, pair in result.metrics.items()
  )
  if result.passes is not None:
    computed = tf.cast(result.passes[0] > 0, tf.float32)
    for i, name in enumerate(('forward_passes', 'backward_passes')):
      metrics[name] = tf.stack([result.passes[i], computed])
  if result.num_examples is not None:
    metrics[_NUM_EXAMPLES] = tf.stack([result.num_examples, tf.constant(1.0)])
  return metrics


def _build_measure(wiring, metrics_type):
  """Returns the function from clients' metrics and counts to measurements."""
  sum_metrics, sum_counts = _build_sums(wiring.metrics_aggregator, metrics_type)

  def measure(metrics, counts):
    train, counted = sum_metrics(metrics), sum_counts(counts)
    if wiring.min_group_size > 1:
      train = _unless_too_few(train, counted, wiring.min_group_size)
    return compat.federated_zip(
      collections.OrderedDict(train=train, clients=counted)
    )

  return measure


def _build_sums(metrics_aggregator, metrics_type):
  """Returns the functions that aggregate the metrics and sum the counts.

  A metrics aggregator takes one argument or two, as in TFF's builders. What it
  returns may be polymorphic: it is traced where it is called.
  """
  finalizers = collections.OrderedDict(
    (name, _total if name == _NUM_EXAMPLES else _ratio)
    for name, _ in compat.iter_elements(metrics_type)
  )
  if metrics_aggregator is None:
    # Not secure, and to trace it for this takes a fourteenth of a build.
    aggregate = tff.learning.metrics.sum_then_finalize(finalizers)
    return aggregate, compat.federated_sum
  if not callable(metrics_aggregator):
    raise TypeError(
      'metrics_aggregator must be a function of the metrics finalizers, as '
      'tff.learning.metrics.sum_then_finalize is, but is '
      f'{metrics_aggregator!r}.'
    )
  arguments = [finalizers]
  try:
    # As TFF does. A second argument may be something else than the type.
    inspect.signature(metrics_aggregator).bind(finalizers)
  except TypeError:
    arguments.append(metrics_type)
  except ValueError:  # It has no signature that Python knows.
    pass
  aggregate = metrics_aggregator(*arguments)

  @compat.federated_computation(
    compat.FederatedType(metrics_type, compat.CLIENTS)
  )
  def traced(metrics):
    return aggregate(metrics)

  # Each client counts once at most.
  return aggregate, inspection.sum_of_bits(traced)


def _unless_too_few(metrics, counts, min_clients: int):
  """Returns the metrics of a round; nothing of them where few clients count."""

  @tff.tensorflow.computation(
    metrics.type_signature.member, counts.type_signature.member
  )
  def hide(metrics, counts):
    def shown(value):
      nothing = math.nan if value.dtype.is_floating else 0
      is_shown = counts['participating'] >= min_clients
      return tf.where(is_shown, value, tf.cast(nothing, value.dtype))

    return tf.nest.map_structure(shown, metrics)

  return compat.federated_map(hide, (metrics, counts))


@tf.function(autograph=False)
def _total(numerator_and_denominator):
  return numerator_and_denominator[0]


@tf.function(autograph=False)
def _ratio(numerator_and_denominator):
  """Finalizes a metric; NaN where nothing was counted."""
  return numerator_and_denominator[0] / numerator_and_denominator[1]
