"""From a local update to a `tff.learning.templates.ClientWorkProcess`."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import randomness
from tff_ssl.templates import client_data as client_data_lib
from tff_ssl.templates import finalizers as finalizers_lib

ModelWeights = tff.learning.models.ModelWeights


class LocalUpdate(NamedTuple):
  """What a client's local work gives.

  Attributes:
    delta: `ModelWeights`, the client's weights minus those it started from.
    weight: `float32` scalar >= 0, the weight of the delta among clients.
    metrics: Ordered dict: metric name -> `float32 [2]`, numerator, denominator.
    invalid: `bool` scalar: whether the client must be left out (a group that
      does not exist).
  """

  delta: Any
  weight: tf.Tensor
  metrics: Any
  invalid: tf.Tensor


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
  """

  weights: Any
  round: tf.Tensor
  seed: tf.Tensor
  hparams: Any
  examples: Any
  client: tf.Tensor
  group: tf.Tensor

  @property
  def client_seed(self) -> tf.Tensor:
    """The seed of this client in this round, `int32 [2]`."""
    return randomness.client_seed(self.seed, self.round, self.client)


def build_client_work(
  local_update: Callable[[ClientTask], tuple[LocalUpdate, Any]],
  *,
  data_spec: client_data_lib.ClientDataSpec,
  weights_type: tff.Type,
  initial_hparams: Callable[[], Any],
  metrics_aggregator: Callable[..., tff.Computation] | None = None,
) -> tff.learning.templates.ClientWorkProcess:
  """Makes a client work process out of what one client does.

  A client whose delta, weight, metrics or examples are not all finite, whose
  group does not exist, or which has no examples, contributes nothing: its
  delta, weight and metrics are zeroed, and it is counted in the metrics
  `clients`.

  Args:
    local_update: Takes a `ClientTask` and returns a `LocalUpdate` and the tag
      that goes beside the delta to the aggregator (the group index), or `None`.
    data_spec: The type of the client data.
    weights_type: The unplaced type of the distributed weights.
    initial_hparams: Returns the client optimizer's hyperparameters.
    metrics_aggregator: As in TFF's own builders; by default
      `tff.learning.metrics.sum_then_finalize`.

  Returns:
    A `tff.learning.templates.ClientWorkProcess` whose state is the optimizer's
    hyperparameters, whose update is `delta`, or `<value=delta, group=tag>`
    where there is a tag, and whose measurements are
    `<train=..., clients=<participating, empty, non_finite, invalid>>`.
  """
  finalizers = collections.OrderedDict()

  initial = tff.tensorflow.computation(initial_hparams)
  hparams_type = initial.type_signature.result
  sent_type = tff.types.to_type(
    collections.OrderedDict(weights=weights_type, round=np.int32, seed=np.int32)
  )

  @tff.tensorflow.computation(sent_type, hparams_type, data_spec.type)
  def work(sent, hparams, data):
    examples, context = client_data_lib.read_context(data, data_spec)
    update, tag = local_update(
      ClientTask(
        sent['weights'],
        sent['round'],
        sent['seed'],
        hparams,
        examples,
        context['client'],
        context['group'],
      )
    )
    empty = tf.equal(tf.shape(examples['y'])[0], 0)
    # The examples too: augmentation may turn NaN pixels into finite ones.
    finite = finalizers_lib.all_finite(
      (update.delta, update.weight, update.metrics, examples)
    )
    usable = finite & ~update.invalid & ~empty
    delta, weight, metrics = tf.nest.map_structure(
      lambda value: tf.where(usable, value, tf.zeros_like(value)),
      (update.delta, update.weight, update.metrics),
    )
    finalizers.update((name, _ratio) for name in metrics)
    clients = collections.OrderedDict(
      participating=tf.cast(weight > 0, tf.int32),
      empty=tf.cast(empty, tf.int32),
      non_finite=tf.cast(~finite, tf.int32),
      invalid=tf.cast(update.invalid, tf.int32),
    )
    if tag is not None:
      delta = collections.OrderedDict(value=delta, group=tag)
    result = tff.learning.templates.ClientResult(delta, weight)
    return result, metrics, clients

  _, metrics_type, _ = work.type_signature.result
  aggregate = (metrics_aggregator or tff.learning.metrics.sum_then_finalize)(
    finalizers, metrics_type
  )

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial, tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(sent_type, tff.CLIENTS),
    tff.FederatedType(data_spec.type, tff.CLIENTS),
  )
  def next_fn(state, sent, data):
    hparams = tff.federated_broadcast(state)
    result, metrics, clients = tff.federated_map(work, (sent, hparams, data))
    measurements = tff.federated_zip(
      collections.OrderedDict(
        train=aggregate(metrics), clients=tff.federated_sum(clients)
      )
    )
    return tff.templates.MeasuredProcessOutput(state, result, measurements)

  @tff.tensorflow.computation(hparams_type)
  def get_hparams(state):
    return state

  @tff.tensorflow.computation(hparams_type, hparams_type)
  def set_hparams(state, hparams):
    del state
    return hparams

  return tff.learning.templates.ClientWorkProcess(
    initialize,
    next_fn,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )


@tf.function
def _ratio(numerator_and_denominator):
  """Finalizes a metric; NaN where nothing was counted."""
  return numerator_and_denominator[0] / numerator_and_denominator[1]


def subtract(new: ModelWeights, start: ModelWeights) -> ModelWeights:
  """Returns the model delta `new - start`."""
  return tf.nest.map_structure(tf.subtract, new, start)
