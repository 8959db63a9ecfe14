"""The server trains on its labelled examples."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols, randomness
from tff_ssl.templates import (
  client_data,
  client_task,
  faults,
  local_training,
  stacks,
)
from tff_ssl.templates.server import finalizers

ModelWeights = tff.learning.models.ModelWeights

_NO_LABEL = (
  'server_data has no example with a label, but the server trains on labels: '
  'give it some, or choose a process without server_data.'
)


@dataclasses.dataclass(frozen=True)
class ServerTraining:
  """The server's own training on its labelled examples (Zhang et al., Eq. 3).

  The server is a participant with the same loop as any client. Its optimizer
  state (momentum) is a part of the finalizer's state, and so outlives the
  round. The server may train several replicas from one start, each with its own
  batches and momentum.

  Attributes:
    training: The `LocalTraining` to run.
    data: A no-argument `tff.Computation` that returns the labelled examples, a
      sequence of `<x=..., y=...>`. It runs inside the round: let it read
      larger sets from a file.
    num_replicas: R >= 1.
  """

  training: local_training.LocalTraining
  data: tff.Computation
  num_replicas: int = 1

  def __post_init__(self):
    signature = getattr(self.data, 'type_signature', None)
    if (
      signature is None
      or signature.parameter is not None
      or not isinstance(signature.result, tff.SequenceType)
    ):
      raise TypeError(
        'server_data must be a tff.Computation without arguments that returns '
        'a sequence of labelled examples <x=..., y=...>*, but is '
        f'{signature or type(self.data).__name__}: '
        'wrap the data set in tff.tensorflow.computation.'
      )

  def initial_optimizer_state(self) -> protocols.OptimizerState:
    """Returns fresh optimizer states, stacked `[R, ...]`."""
    state = self.training.initial_optimizer_state()
    return stacks.tile(state, self.num_replicas)

  def get_hparams(
    self, optimizer_state: protocols.OptimizerState
  ) -> protocols.Hparams:
    """Returns the hyperparameters, which all replicas share."""
    return self.training.plan.optimizer.get_hparams(
      stacks.row(optimizer_state, 0)
    )

  def set_hparams(
    self,
    optimizer_state: protocols.OptimizerState,
    hparams: protocols.Hparams,
  ) -> protocols.OptimizerState:
    """Sets the hyperparameters of all replicas."""
    set_hparams = self.training.plan.optimizer.set_hparams
    return stacks.stack(
      set_hparams(stacks.row(optimizer_state, i), hparams)
      for i in range(self.num_replicas)
    )

  def run(
    self,
    start: ModelWeights,
    optimizer_state: protocols.OptimizerState,
    *,
    seed: tf.Tensor,
    round_num: tf.Tensor,
  ) -> local_training.TrainingResult:
    """Trains one round from `start`; call it inside a TFF TensorFlow block.

    Args:
      start: `ModelWeights`, the start of all replicas.
      optimizer_state: Stacked `[R, ...]`.
      seed: The run's seed, `int32` scalar.
      round_num: Rounds before this one, `int32` scalar.

    Returns:
      A `TrainingResult` of which all tensors have a first dimension R.
    """
    examples = self.read_examples()

    # Traced once for all replicas.
    @tf.function(autograph=False)
    def train(optimizer_state, replica_seed):
      return self.training.run(
        start,
        examples,
        seed=replica_seed,
        round_num=round_num,
        optimizer_state=optimizer_state,
      )

    own_seed = randomness.server_seed(seed, round_num)

    def seed_of(replica):
      return randomness.fold_in(
        randomness.fold_in(own_seed, randomness.Purpose.REPLICA), replica
      )

    return stacks.stack(
      train(
        stacks.row(optimizer_state, i),
        own_seed if self.num_replicas == 1 else seed_of(i),
      )
      for i in range(self.num_replicas)
    )

  @staticmethod
  def first_replica(weights: ModelWeights) -> ModelWeights:
    """Returns the first of the replicas' weights, which are stacked."""
    return stacks.row(weights, 0)

  def read_examples(self) -> client_task.Examples:
    """Returns the labelled examples, an ordered dict of tensors.

    Raises:
      ValueError: If their type says that there are none. Where the data have
        none, an `InvalidArgumentError` is raised in the round.
    """
    dataset = self.data()
    spec = client_data.ClientDataSpec(dataset.element_spec)
    spec.check_model(self.training.model)
    if spec.batched and spec.named['y'].shape[0] == 0:
      raise ValueError(_NO_LABEL)
    examples = client_data.collect(dataset, spec)
    # Nothing would be trained, and measures be 0/0.
    check = tf.debugging.assert_greater_equal(
      tf.reduce_max(examples['y']),  # Of no labels, the lowest number.
      0,
      message=_NO_LABEL,
    )
    with tf.control_dependencies([check]):
      examples['y'] = tf.identity(examples['y'])
    return examples


def initial_state(
  server: ServerTraining, seed: int
) -> collections.OrderedDict[str, Any]:
  """Returns the first state of a finalizer in which the server trains.

  Args:
    server: How it trains.
    seed: The run's seed.

  Returns:
    `<optimizer, round=int32, seed=int32>`, tensors.
  """
  return collections.OrderedDict(
    optimizer=server.initial_optimizer_state(),
    round=tf.constant(0, tf.int32),
    seed=tf.constant(seed, tf.int32),
  )


def ratios(
  metrics: protocols.Metrics,
) -> collections.OrderedDict[str, tf.Tensor]:
  """Turns (numerator, denominator) pairs into values; NaN where 0/0."""
  return collections.OrderedDict(
    (name, pair[0] / pair[1]) for name, pair in metrics.items()
  )


def build_server_training(
  server: ServerTraining,
  combine: Callable[[Any, ModelWeights, Any], Any],
  *,
  server_start: Callable[[Any, Any], ModelWeights],
  weights_type: tff.Type,
  aggregate_type: tff.Type,
  seed: int,
) -> tff.learning.templates.FinalizerProcess:
  """Trains the server's model on its labels, and joins it with the aggregate.

  The state holds the round, the seed and the server optimizer's state, which
  goes on across rounds. A result that is not finite leaves weights and
  optimizer as they are, and counts in `update_non_finite`.

  Args:
    server: How the server trains.
    combine: `(weights, server_weights, aggregate) -> weights`, in TensorFlow;
      `server_weights` are stacked, `[R, ...]`.
    server_start: `(weights, aggregate) -> ModelWeights`, in TensorFlow; where
      the server starts from.
    weights_type: Unplaced type of the global model weights.
    aggregate_type: Unplaced type of the aggregator's result.
    seed: The run's seed.

  Returns:
    A `tff.learning.templates.FinalizerProcess` whose measurements are
    `<server=<loss, accuracy>, update_non_finite=int32>`.
  """

  def update(state, weights, aggregate):
    trained = server.run(
      server_start(weights, aggregate),
      state['optimizer'],
      seed=state['seed'],
      round_num=state['round'],
    )
    combined = combine(weights, trained.weights, aggregate)
    finite = faults.all_finite((combined, trained.optimizer_state))
    weights, optimizer_state = faults.choose(
      finite,
      (combined, trained.optimizer_state),
      (weights, state['optimizer']),
    )
    state = collections.OrderedDict(
      optimizer=optimizer_state, round=state['round'] + 1, seed=state['seed']
    )
    metrics = tf.nest.map_structure(
      lambda replicas: tf.reduce_sum(replicas, 0), trained.metrics
    )
    measurements = collections.OrderedDict(
      server=ratios(metrics),
      update_non_finite=tf.cast(~finite, tf.int32),
    )
    return state, weights, measurements

  return finalizers.build_finalizer(
    lambda: initial_state(server, seed),
    update,
    weights_type=weights_type,
    aggregate_type=aggregate_type,
    optimizer=server,
  )
