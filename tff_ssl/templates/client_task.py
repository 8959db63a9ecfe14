"""What a client gets to work with, and what its work gives."""

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat, protocols, randomness
from tff_ssl.templates import client_data

ModelWeights: TypeAlias = tff.learning.models.ModelWeights
Examples = collections.OrderedDict[str, tf.Tensor]


class ClientTask(NamedTuple):
  """What a client gets to work with.

  Attributes:
    weights: The global weights, as the server sent them.
    round: `int32` scalar, rounds before this one.
    seed: `int32` scalar, the run's seed.
    hparams: The client optimizer's hyperparameters.
    examples: Tensors of the client's examples.
    client: `int32` scalar, index that the client's randomness derives from.
    group: `int32` scalar, -1 where none was assigned. It and the fields to
      `work` are those of the context (`client_data`), if it has them.
    optimizer_state: The state that its optimizer goes on from, if one outlives
      the round; this and the next two are what `memories` hold.
    client_state: The client's own state, if clients have one.
    shared_state: What all clients read of a state at the server, if there is
      one.
  """

  weights: ModelWeights
  round: tf.Tensor
  seed: tf.Tensor
  hparams: protocols.Hparams
  examples: Examples
  client: tf.Tensor
  group: tf.Tensor
  slot: tf.Tensor | None = None
  start_group: tf.Tensor | None = None
  class_priors: tf.Tensor | None = None
  set_shares: tf.Tensor | None = None
  corrupt: tf.Tensor | None = None
  work: tf.Tensor | None = None
  optimizer_state: protocols.OptimizerState | None = None
  client_state: protocols.Structure | None = None
  shared_state: protocols.Structure | None = None

  @property
  def client_seed(self) -> tf.Tensor:
    """The seed of this client in this round, `int32 [2]`."""
    return randomness.client_seed(self.seed, self.round, self.client)

  @property
  def constants(self) -> collections.OrderedDict[str, tf.Tensor]:
    """What each of the client's minibatches carries; see `LocalTraining.run`.

    `class_priors` and `set_shares` if examples lie in sets, else nothing.
    """
    if self.class_priors is None:
      return collections.OrderedDict()
    return collections.OrderedDict(
      class_priors=self.class_priors, set_shares=self.set_shares
    )


class TrainingResult(NamedTuple):
  """What a training run gives, or all that a client's work gives by several.

  Attributes:
    weights: The new `ModelWeights`.
    optimizer_state: The optimizer's state after the last step.
    metrics: Ordered dict: metric name -> `float32 [2]`, numerator and
      denominator summed over all steps, or a tuple of these two.
    num_examples: `float32` scalar, examples processed, repetitions counted, if
      they are.
    passes: `float32 [2]`, examples that went forward through the model and
      back (`prediction.Predictor.passes`), if they are counted.
    client_state: The client's new state, if clients have one
      (`memories.ClientMemory`).
    num_steps: `int32` scalar, steps taken.
    shared_change: What the client contributes to the state that all clients
      share, if there is one (`memories.SharedMean`).
  """

  weights: ModelWeights
  optimizer_state: protocols.OptimizerState
  metrics: protocols.Metrics
  num_examples: tf.Tensor | None = None
  passes: tf.Tensor | None = None
  client_state: protocols.Structure = ()
  num_steps: tf.Tensor | tuple[()] = ()
  shared_change: protocols.Structure = ()


class LocalUpdate(NamedTuple):
  """What a client's local work gives.

  Attributes:
    delta: `ModelWeights`, the client's new weights minus global ones: those
      that it started from or, where there are several global models, those of
      its group.
    weight: `float32` scalar >= 0, the weight of the delta among clients.
    result: Of its training; it may have other weights.
    invalid: `bool` scalar: whether the client must be left out, because it
      names something that does not exist, such as a group.
  """

  delta: ModelWeights
  weight: tf.Tensor
  result: TrainingResult
  invalid: tf.Tensor | bool = False


# What a client does; beside its update, the tag that goes with the delta to the
# aggregator (such as the client's group), or `None`.
LocalWork = Callable[[ClientTask], tuple[LocalUpdate, Any]]


def message_type(weights_type: compat.Type) -> compat.Type:
  """Returns the unplaced type of what a client is sent in each round."""
  return compat.to_type(
    collections.OrderedDict(weights=weights_type, round=np.int32, seed=np.int32)
  )


def read_task(
  message: Mapping[str, Any],
  hparams: protocols.Hparams,
  data,
  data_spec: client_data.ClientDataSpec,
) -> ClientTask:
  """Returns a client's task, which does not know the memories yet."""
  examples, context = client_data.read_context(data, data_spec)
  return ClientTask(
    weights=message['weights'],
    round=message['round'],
    seed=message['seed'],
    hparams=hparams,
    examples=examples,
    **context,
  )


def subtract(new: ModelWeights, start: ModelWeights) -> ModelWeights:
  """Returns the model delta `new - start`."""
  return tf.nest.map_structure(tf.subtract, new, start)
