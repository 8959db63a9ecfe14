"""From a local update to a `tff.learning.templates.ClientWorkProcess`."""

import collections
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import randomness
from tff_ssl.templates import client_data as client_data_lib
from tff_ssl.templates import client_state as client_state_lib
from tff_ssl.templates import finalizers as finalizers_lib
from tff_ssl.templates import slots, stacks

ModelWeights = tff.learning.models.ModelWeights


class LocalUpdate(NamedTuple):
  """What a client's local work gives.

  Attributes:
    delta: `ModelWeights`, the client's weights minus global ones: those it
      started from, or where several models are global, those of its group.
    weight: `float32` scalar >= 0, the weight of the delta among clients.
    metrics: Ordered dict: metric name -> `float32 [2]`, numerator, denominator,
      or a tuple of these two.
    invalid: `bool` scalar: whether the client must be left out (a group that
      does not exist).
    slot_state: The slot's new state, where slots have one.
    client_state: The client's new state, where clients have one.
    passes: `float32 [2]`, examples that went forward through the model and back
      in all of its work (`prediction.Predictor.passes`), where it is counted.
    shared_change: What the client wants of the `SharedState`, if there is one.
  """

  delta: Any
  weight: tf.Tensor
  metrics: Any
  invalid: tf.Tensor
  slot_state: Any = None
  client_state: Any = None
  passes: tf.Tensor | None = None
  shared_change: Any = ()


class ClientTask(NamedTuple):
  """What a client gets to work with.

  Attributes:
    weights: The distributed weights.
    round: `int32` scalar, rounds before this one.
    seed: `int32` scalar, the run's seed.
    hparams: The client optimizer's hyperparameters.
    examples: Tensors of the client's examples.
    client: `int32` scalar, index that the client's randomness derives from.
    group: `int32` scalar, -1 where none was assigned.
    start_group: `int32` scalar, where the context names it.
    class_priors: `float32 [M, d]`, where examples lie in sets.
    set_shares: `float32 [M]`, likewise.
    slot_state: The slot's state, where slots have one.
    client_state: The client's own state, where clients have one.
    shared_state: What is sent of the `SharedState`, if there is one.
  """

  weights: Any
  round: tf.Tensor
  seed: tf.Tensor
  hparams: Any
  examples: Any
  client: tf.Tensor
  group: tf.Tensor
  start_group: tf.Tensor | None = None
  class_priors: tf.Tensor | None = None
  set_shares: tf.Tensor | None = None
  slot_state: Any = None
  client_state: Any = None
  shared_state: Any = None

  @property
  def client_seed(self) -> tf.Tensor:
    """The seed of this client in this round, `int32 [2]`."""
    return randomness.client_seed(self.seed, self.round, self.client)

  @property
  def constants(self) -> collections.OrderedDict[str, tf.Tensor]:
    """What each of the client's minibatches carries; see `LocalTraining.run`.

    `class_priors` and `set_shares` where examples lie in sets, else nothing.
    """
    if self.class_priors is None:
      return collections.OrderedDict()
    return collections.OrderedDict(
      class_priors=self.class_priors, set_shares=self.set_shares
    )


class SharedState(NamedTuple):
  """State that the server keeps and sends to all clients, beside the weights.

  Attributes:
    initial: Returns the first one, a structure of tensors.
    merge: From the state, what the `shared_change` of all clients that count
      add up to, and the number of those with a weight (`float32` scalar), to
      the next state.
    is_mean: Whether the changes are averaged with the weights of the deltas, or
      summed.
    send: From the state to what clients are sent; by default all of it.
    is_missing: From a client's index to whether it has no place in the state,
      which makes it invalid; by default every client has one.
  """

  initial: Callable[[], Any]
  merge: Callable[[Any, Any, tf.Tensor], Any]
  is_mean: bool = False
  send: Callable[[Any], Any] = lambda state: state
  is_missing: Callable[..., tf.Tensor] = lambda client: tf.constant(False)

  def to_sum(self, update: LocalUpdate) -> collections.OrderedDict:
    """Returns what is summed over clients for `merge_sums`."""
    change = update.shared_change
    if self.is_mean:
      change = tf.nest.map_structure(lambda leaf: update.weight * leaf, change)
    return collections.OrderedDict(
      change=change,
      weight=update.weight,
      count=tf.cast(update.weight > 0, tf.float32),
    )

  def merge_sums(self, state, sums):
    """Returns the next state, or the old one where that is not finite."""
    change = sums['change']
    if self.is_mean:
      change = tf.nest.map_structure(
        lambda leaf: tf.math.divide_no_nan(leaf, sums['weight']), change
      )
    merged = self.merge(state, change, sums['count'])
    finite = finalizers_lib.all_finite(merged)
    return tf.nest.map_structure(
      lambda new, old: tf.where(finite, new, old), merged, state
    )


def read_task(
  sent, hparams, data, data_spec: client_data_lib.ClientDataSpec
) -> tuple[ClientTask, collections.OrderedDict[str, tf.Tensor]]:
  """Returns a client's task, without slot state, and its context.

  Args:
    sent: What the distributor sends, `<weights, round, seed>`.
    hparams: The client optimizer's hyperparameters.
    data: The client's data, of `data_spec.type`.
    data_spec: The type of the client data.
  """
  examples, context = client_data_lib.read_context(data, data_spec)
  task = ClientTask(
    weights=sent['weights'],
    round=sent['round'],
    seed=sent['seed'],
    hparams=hparams,
    examples=examples,
    client=context['client'],
    group=context['group'],
    start_group=context.get('start_group'),
    class_priors=context.get('class_priors'),
    set_shares=context.get('set_shares'),
  )
  return task, context


def find_faults(
  update: LocalUpdate, examples, further=()
) -> tuple[collections.OrderedDict[str, tf.Tensor], tf.Tensor]:
  """Says why a client must be left out, and whether it may count.

  Args:
    update: Its `LocalUpdate`.
    examples: Tensors of its examples.
    further: Whatever else must be finite.

  Returns:
    The `bool` scalars `empty`, `non_finite` and `invalid`, and one that is true
    where none of them is.
  """
  # The examples too: augmentation may turn NaN pixels into finite ones.
  finite = finalizers_lib.all_finite(
    (update.delta, update.weight, update.metrics, examples, further)
  )
  faults = collections.OrderedDict(
    empty=tf.equal(tf.shape(examples['y'])[0], 0),
    non_finite=~finite,
    invalid=update.invalid,
  )
  return faults, ~tf.reduce_any(list(faults.values()))


def zero_unless(usable: tf.Tensor, values):
  """Returns a structure of tensors, or zeros where a client may not count."""
  return tf.nest.map_structure(
    lambda value: tf.where(usable, value, tf.zeros_like(value)), values
  )


def build_client_work(
  local_update: Callable[[ClientTask], tuple[LocalUpdate, Any]],
  *,
  data_spec: client_data_lib.ClientDataSpec,
  weights_type: tff.Type,
  initial_hparams: Callable[[], Any],
  num_slots: int = 0,
  initial_slot_state: Callable[[], Any] | None = None,
  client_state_dir: str | None = None,
  initial_client_state: Callable[[ClientTask], Any] | None = None,
  shared_state: SharedState | None = None,
  tag_name: str = 'group',
  metrics_aggregator: Callable[..., tff.Computation] | None = None,
) -> tff.learning.templates.ClientWorkProcess:
  """Makes a client work process out of what one client does.

  A client whose delta, weight, metrics or examples are not all finite, whose
  group does not exist, or which has no examples, contributes nothing: its
  delta, weight and metrics are zeroed, and it is counted in the metrics
  `clients`.

  Whatever the aggregators hide, the sums of the four numbers in `clients` reach
  the server in the clear: how many clients took part, were empty, not finite or
  invalid. So do the sums that make up `slots` and `shared`.

  Where passes are counted, the metrics `forward_passes` and `backward_passes`
  are their means over the clients that computed anything.

  Args:
    local_update: Takes a `ClientTask` and returns a `LocalUpdate` and the tag
      that goes beside the delta to the aggregator (the group index), or `None`.
    data_spec: The type of the client data.
    weights_type: The unplaced type of the distributed weights.
    initial_hparams: Returns the client optimizer's hyperparameters.
    num_slots: C, where slots have a state (see `slots.py`), otherwise 0. The
      context of the client data names the slot then (`ClientDataSpec.in_slots`)
      and a client whose slot does not exist is invalid.
    initial_slot_state: Returns the first state of a slot, where they have one.
    client_state_dir: Where clients keep a state, if they do (see
      `client_state.py`).
    initial_client_state: Returns the first state of a client, where they do.
    shared_state: What all clients share, if they do.
    tag_name: What the aggregator knows the tag by.
    metrics_aggregator: As in TFF's own builders, a function of the metrics'
      finalizers, or of these and the type of the metrics; by default
      `tff.learning.metrics.sum_then_finalize`. It does not cover `clients`.

  Returns:
    A `tff.learning.templates.ClientWorkProcess` whose state holds the
    optimizer's `hparams` and maybe `slots` and `shared`, whose update is
    `delta`, or `<value=delta, TAG_NAME=tag>` where there is a tag, and whose
    measurements are
    `<train=..., clients=<participating, empty, non_finite, invalid>>`.

  Raises:
    TypeError: If `metrics_aggregator` is not a function.
  """
  finalizers = collections.OrderedDict()

  @tff.tensorflow.computation
  def initial():
    state = collections.OrderedDict(hparams=initial_hparams())
    if num_slots:
      state['slots'] = stacks.tile(initial_slot_state(), num_slots)
    if shared_state is not None:
      state['shared'] = shared_state.initial()
    return state

  state_type = initial.type_signature.result

  @tff.tensorflow.computation(state_type)
  def to_send(state):
    if shared_state is not None:
      state['shared'] = shared_state.send(state['shared'])
    return state

  sent_type = tff.types.to_type(
    collections.OrderedDict(weights=weights_type, round=np.int32, seed=np.int32)
  )

  @tff.tensorflow.computation(
    sent_type, to_send.type_signature.result, data_spec.type
  )
  def work(sent, state, data):
    task, context = read_task(sent, state['hparams'], data, data_spec)
    if num_slots:
      slot = context['slot']
      task = task._replace(slot_state=stacks.row(state['slots'], slot))
    if client_state_dir is not None:
      own, _ = client_state_lib.read(
        client_state_dir, task, lambda: initial_client_state(task)
      )
      task = task._replace(client_state=own)
    if shared_state is not None:
      task = task._replace(shared_state=state['shared'])
    update, tag = local_update(task)
    # TFF's secure sums take pairs of tensors for bounds.
    update = update._replace(
      metrics=collections.OrderedDict(
        (name, tf.convert_to_tensor(pair))
        for name, pair in update.metrics.items()
      )
    )
    if num_slots:
      missing = stacks.is_missing(slot, num_slots)
      update = update._replace(invalid=update.invalid | missing)
    if shared_state is not None:
      missing = shared_state.is_missing(task.client)
      update = update._replace(invalid=update.invalid | missing)
    if update.passes is not None:
      update = update._replace(
        metrics=collections.OrderedDict(
          update.metrics, **_passes_metrics(update.passes)
        )
      )
    faults, usable = find_faults(update, task.examples, update.shared_change)
    sent_back = zero_unless(
      usable, (update.delta, update.weight, update.metrics)
    )
    if client_state_dir is not None:
      written = client_state_lib.write(
        client_state_dir, task, update.client_state, usable
      )
      with tf.control_dependencies([written]):
        sent_back = tf.nest.map_structure(tf.identity, sent_back)
    delta, weight, metrics = sent_back
    finalizers.update((name, _ratio) for name in metrics)
    clients = tf.nest.map_structure(
      lambda flag: tf.cast(flag, tf.int32),
      collections.OrderedDict(participating=weight > 0, **faults),
    )
    if tag is not None:
      delta = collections.OrderedDict([('value', delta), (tag_name, tag)])
    result = tff.learning.templates.ClientResult(delta, weight)
    kept = collections.OrderedDict()
    if num_slots:
      kept['slots'] = slots.scatter(update.slot_state, slot, num_slots, usable)
    if shared_state is not None:
      kept['shared'] = zero_unless(usable, shared_state.to_sum(update))
    return result, metrics, clients, kept

  _, metrics_type, _, kept_type = work.type_signature.result
  aggregate = _build_metrics_aggregation(
    metrics_aggregator, finalizers, metrics_type
  )

  def merge_kept(state, kept):
    if num_slots:
      state['slots'] = slots.merge(state['slots'], *kept['slots'])
    if shared_state is not None:
      state['shared'] = shared_state.merge_sums(state['shared'], kept['shared'])
    return state

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial, tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(sent_type, tff.CLIENTS),
    tff.FederatedType(data_spec.type, tff.CLIENTS),
  )
  def next_fn(state, sent, data):
    shown = tff.federated_map(to_send, state) if shared_state else state
    result, metrics, clients, kept = tff.federated_map(
      work, (sent, tff.federated_broadcast(shown), data)
    )
    measurements = tff.federated_zip(
      collections.OrderedDict(
        train=aggregate(metrics), clients=tff.federated_sum(clients)
      )
    )
    if num_slots or shared_state is not None:
      merge = tff.tensorflow.computation(merge_kept, (state_type, kept_type))
      state = tff.federated_map(merge, (state, tff.federated_sum(kept)))
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


def _build_metrics_aggregation(
  metrics_aggregator, finalizers, metrics_type
) -> Callable:
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
  try:
    inspect.signature(metrics_aggregator).bind(finalizers)
  except TypeError:
    return metrics_aggregator(finalizers, metrics_type)
  except ValueError:  # It has no signature that Python knows.
    pass
  # As TFF does. A second argument may be something else than the type.
  return metrics_aggregator(finalizers)


def _passes_metrics(passes):
  """Returns the metrics of the passes of a client."""
  computed = tf.cast(passes[0] > 0, tf.float32)
  return {
    name: tf.stack([passes[i], computed])
    for i, name in enumerate(('forward_passes', 'backward_passes'))
  }


@tf.function
def _ratio(numerator_and_denominator):
  """Finalizes a metric; NaN where nothing was counted."""
  return numerator_and_denominator[0] / numerator_and_denominator[1]


def subtract(new: ModelWeights, start: ModelWeights) -> ModelWeights:
  """Returns the model delta `new - start`."""
  return tf.nest.map_structure(tf.subtract, new, start)
