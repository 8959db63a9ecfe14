"""From a local update to a `tff.learning.templates.ClientWorkProcess`."""

import collections
import dataclasses
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols
from tff_ssl.aggregators import inspection
from tff_ssl.templates import client_data, client_task, faults
from tff_ssl.templates import memories as memories_lib

# The metric of examples processed, which is a sum, as in TFF.
NUM_EXAMPLES = 'num_examples'


@dataclasses.dataclass(frozen=True)
class Clients:
  """What the clients of a process do.

  Attributes:
    local_update: Takes a `ClientTask`. Returns a `LocalUpdate` and the tag that
      goes beside the delta to the aggregator (such as the client's group), or
      `None`.
    data_spec: The type of the client data.
    initial_hparams: Returns the client optimizer's hyperparameters, an ordered
      dict.
    memories: What outlives a round, beside the weights.
    tag_name: What the aggregator knows the tag by.
  """

  local_update: Callable[
    [client_task.ClientTask], tuple[client_task.LocalUpdate, Any]
  ]
  data_spec: client_data.ClientDataSpec
  initial_hparams: Callable[[], protocols.Hparams]
  memories: tuple[memories_lib.Memory, ...] = ()
  tag_name: str = 'group'


def with_max_weight(clients: Clients, max_weight: float) -> Clients:
  """Returns clients that weigh no more than a number, and no less than 0.

  Args:
    clients: What clients do.
    max_weight: The largest weight, above 0. A weight that is not finite stays
      so: such a client is left out.
  """

  def local_update(task):
    update, tag = clients.local_update(task)
    weight = update.weight
    capped = tf.clip_by_value(weight, 0.0, max_weight)
    weight = tf.where(tf.math.is_finite(weight), capped, weight)
    return update._replace(weight=weight), tag

  return dataclasses.replace(clients, local_update=local_update)


def build_client_work(
  clients: Clients,
  weights_type: tff.Type,
  metrics_aggregator: Callable[..., tff.Computation] | None = None,
  *,
  min_clients: int = 1,
) -> tff.learning.templates.ClientWorkProcess:
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
    clients: What clients do.
    weights_type: The unplaced type of the global weights.
    metrics_aggregator: As in TFF's own builders, a function of the metrics'
      finalizers, or of these and the type of the metrics; by default
      `tff.learning.metrics.sum_then_finalize`.
    min_clients: The fewest clients that count whose metrics are shown; with
      fewer they are NaN, and 0 where they are integers.

  Returns:
    A `tff.learning.templates.ClientWorkProcess`. Its state holds the
    optimizer's `hparams` and the fields of the memories. Its update is `delta`,
    or `<value=delta, TAG_NAME=tag>` if there is a tag. Its measurements are
    `<train=..., clients=<participating, empty, non_finite, invalid>>`.

  Raises:
    TypeError: If `metrics_aggregator` is not a function.
    ValueError: If two memories keep a field of the same name.
  """

  initial = tff.tensorflow.computation(lambda: _initial(clients))
  state_type = initial.type_signature.result
  to_send = tff.tensorflow.computation(
    lambda state: _to_send(clients, state), state_type
  )
  message_type = tff.types.to_type(
    collections.OrderedDict(weights=weights_type, round=np.int32, seed=np.int32)
  )

  work = tff.tensorflow.computation(
    lambda message, sent, data: _work(clients, message, sent, data),
    (message_type, to_send.type_signature.result, clients.data_spec.type),
  )
  _, metrics_type, _, sums_type = work.type_signature.result
  aggregate = _build_metrics_aggregation(metrics_aggregator, metrics_type)
  sum_counts = tff.federated_sum
  # The default is not, and to trace it takes a fourteenth of a build.
  if metrics_aggregator is not None and _is_secure(aggregate, metrics_type):
    # Each client counts once at most.
    sum_counts = functools.partial(
      tff.federated_secure_sum_bitwidth, bitwidth=1
    )

  merge = tff.tensorflow.computation(
    lambda state, sums: _merge(clients, state, sums), (state_type, sums_type)
  )

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial, tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(message_type, tff.CLIENTS),
    tff.FederatedType(clients.data_spec.type, tff.CLIENTS),
  )
  def next_fn(state, message, data):
    # Without memories, a call of a computation is saved.
    sent = tff.federated_map(to_send, state) if clients.memories else state
    result, metrics, counts, sums = tff.federated_map(
      work, (message, tff.federated_broadcast(sent), data)
    )
    train, counted = aggregate(metrics), sum_counts(counts)
    if min_clients > 1:
      train = _unless_too_few(train, counted, min_clients)
    measurements = tff.federated_zip(
      collections.OrderedDict(train=train, clients=counted)
    )
    if len(sums_type):
      state = tff.federated_map(merge, (state, tff.federated_sum(sums)))
    return tff.templates.MeasuredProcessOutput(state, result, measurements)

  @tff.tensorflow.computation(state_type)
  def get_hparams(state):
    return state['hparams']

  @tff.tensorflow.computation(state_type, state_type['hparams'])
  def set_hparams(state, hparams):
    state['hparams'] = hparams
    return state

  return tff.learning.templates.ClientWorkProcess(
    initialize,
    next_fn,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )


def _initial(clients: Clients):
  """Returns the state of the client work before the first round."""
  state = collections.OrderedDict(hparams=clients.initial_hparams())
  for memory in clients.memories:
    fields = memory.initial()
    if taken := sorted(fields.keys() & state.keys()):
      raise ValueError(
        f'{type(memory).__name__} keeps {taken}, as something before it does: '
        'give each of the memories fields of its own.'
      )
    state.update(fields)
  return state


def _to_send(clients: Clients, state):
  """Returns what clients are sent of the state."""
  sent = collections.OrderedDict(hparams=state['hparams'])
  for memory in clients.memories:
    sent.update(memory.send(state))
  return sent


def _merge(clients: Clients, state, sums):
  """Returns the state after a round."""
  merged = collections.OrderedDict(state)
  for memory in clients.memories:
    merged.update(memory.merge(state, sums))
  return merged


def _work(clients: Clients, message, sent, data):
  """Does the work of one client.

  Args:
    clients: What clients do.
    message: What the distributor sends, `<weights, round, seed>`.
    sent: `hparams`, and what memories send.
    data: The client's data.

  Returns:
    The `ClientResult`, the metrics, the counts of `clients`, and what the
    client leaves in the memories at the server.
  """
  task = client_task.read_task(
    message, sent['hparams'], data, clients.data_spec
  )
  missing = tf.constant(False)
  for memory in clients.memories:
    task, has_no_place = memory.read(task, sent)
    missing |= has_no_place

  update, tag = clients.local_update(task)
  update = update._replace(
    metrics=_reported(update), invalid=update.invalid | missing
  )
  reasons, usable = faults.find_faults(
    update, task.examples, update.shared_change
  )
  sums, written = collections.OrderedDict(), []
  for memory in clients.memories:
    kept = memory.leave(task, update, usable)
    sums.update(kept.sums)
    written += kept.written

  sent_back = faults.zero_unless(
    usable, (update.delta, update.weight, update.metrics)
  )
  with tf.control_dependencies(written):
    delta, weight, metrics = tf.nest.map_structure(tf.identity, sent_back)
  counts = tf.nest.map_structure(
    lambda flag: tf.cast(flag, tf.int32),
    collections.OrderedDict(participating=weight > 0, **reasons),
  )
  if tag is not None:
    delta = collections.OrderedDict([('value', delta), (clients.tag_name, tag)])
  result = tff.learning.templates.ClientResult(delta, weight)
  return result, metrics, counts, sums


def _reported(
  update: client_task.LocalUpdate,
) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns all metrics of a client, with those of its passes."""
  # TFF's secure sums take pairs of tensors for bounds.
  metrics = collections.OrderedDict(
    (name, tf.convert_to_tensor(pair)) for name, pair in update.metrics.items()
  )
  if update.passes is not None:
    computed = tf.cast(update.passes[0] > 0, tf.float32)
    for i, name in enumerate(('forward_passes', 'backward_passes')):
      metrics[name] = tf.stack([update.passes[i], computed])
  if update.num_examples is not None:
    metrics[NUM_EXAMPLES] = tf.stack([update.num_examples, tf.constant(1.0)])
  return metrics


def _build_metrics_aggregation(metrics_aggregator, metrics_type) -> Callable:
  """Calls a metrics aggregator, of one argument or two, as TFF's builders do.

  What it returns may be polymorphic: it is traced where it is called.
  """
  if metrics_aggregator is None:
    metrics_aggregator = tff.learning.metrics.sum_then_finalize
  if not callable(metrics_aggregator):
    raise TypeError(
      'metrics_aggregator must be a function of the metrics finalizers, as '
      'tff.learning.metrics.sum_then_finalize is, but is '
      f'{metrics_aggregator!r}.'
    )
  finalizers = collections.OrderedDict(
    (name, _total if name == NUM_EXAMPLES else _ratio)
    for name, _ in tff.structure.iter_elements(metrics_type)
  )
  try:
    inspect.signature(metrics_aggregator).bind(finalizers)
  except TypeError:
    return metrics_aggregator(finalizers, metrics_type)
  except ValueError:  # It has no signature that Python knows.
    pass
  # As TFF does. A second argument may be something else than the type.
  return metrics_aggregator(finalizers)


def _is_secure(aggregate: Callable, metrics_type: tff.Type) -> bool:
  """Whether a metrics aggregation has secure sums."""

  @tff.federated_computation(tff.FederatedType(metrics_type, tff.CLIENTS))
  def traced(metrics):
    return aggregate(metrics)

  return inspection.has_secure_sums(traced)


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

  return tff.federated_map(hide, (metrics, counts))


@tf.function(autograph=False)
def _total(numerator_and_denominator):
  """Finalizes a sum."""
  return numerator_and_denominator[0]


@tf.function(autograph=False)
def _ratio(numerator_and_denominator):
  """Finalizes a metric; NaN where nothing was counted."""
  return numerator_and_denominator[0] / numerator_and_denominator[1]
