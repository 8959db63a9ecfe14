"""What the server does after aggregation: apply the update, train on labels."""

import collections
import dataclasses
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import randomness
from tff_ssl.templates import client_data, local_training, stacks

ModelWeights = tff.learning.models.ModelWeights


def all_finite(structure) -> tf.Tensor:
  """Returns a `bool` scalar: whether every float in `structure` is finite."""
  return tf.reduce_all(
    [
      tf.reduce_all(tf.math.is_finite(value))
      for value in tf.nest.flatten(structure)
      if value.dtype.is_floating
    ]
  )


@dataclasses.dataclass(frozen=True)
class ServerTraining:
  """The server's own training on its labelled examples (paper 1, Eq. 3).

  The server is a participant with the same loop as any client. Its optimizer
  state (momentum) lives in the finalizer's state, across rounds. It may train
  several replicas from one start, each with its own batches and momentum.

  Attributes:
    training: The `LocalTraining` to run.
    data: A no-argument `tff.Computation` that returns the labelled examples, a
      sequence of `<x=..., y=...>`; it runs inside the round, so that larger
      sets are best read from a file there.
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

  def initial_optimizer_state(self):
    """Returns fresh optimizer states, stacked `[R, ...]`."""
    state = self.training.initial_optimizer_state()
    return stacks.tile(state, self.num_replicas)

  def get_hparams(self, optimizer_state):
    """Returns the hyperparameters, which all replicas share."""
    return self.training.optimizer.get_hparams(stacks.row(optimizer_state, 0))

  def set_hparams(self, optimizer_state, hparams):
    """Sets the hyperparameters of all replicas."""
    set_hparams = self.training.optimizer.set_hparams
    return stacks.stack(
      set_hparams(stacks.row(optimizer_state, i), hparams)
      for i in range(self.num_replicas)
    )

  def run(
    self, start: ModelWeights, optimizer_state, *, seed, round_num
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

  def read_examples(self):
    """Returns the labelled examples, an ordered dict of tensors."""
    dataset = self.data()
    spec = client_data.ClientDataSpec(dataset.element_spec)
    spec.check_model(self.training.model)
    return client_data.collect(dataset, spec)


def ratios(metrics) -> collections.OrderedDict[str, tf.Tensor]:
  """Turns (numerator, denominator) pairs into values; NaN where 0/0."""
  return collections.OrderedDict(
    (name, pair[0] / pair[1]) for name, pair in metrics.items()
  )


def _build_finalizer(
  initial_state,
  update,
  *,
  weights_type: tff.Type,
  aggregate_type: tff.Type,
  optimizer=None,
) -> tff.learning.templates.FinalizerProcess:
  """Makes a finalizer process out of two TensorFlow functions.

  Args:
    initial_state: Returns the state, an ordered dict.
    update: `(state, weights, aggregate) -> (state, weights, measurements)`.
    weights_type: Unplaced type of the global model weights.
    aggregate_type: Unplaced type of the aggregator's result.
    optimizer: If there is one, its `get_hparams` and `set_hparams` handle the
      hyperparameters in `state['optimizer']`.

  Returns:
    A `tff.learning.templates.FinalizerProcess`.
  """
  initial = tff.tensorflow.computation(initial_state)
  state_type = initial.type_signature.result
  apply = tff.tensorflow.computation(
    update, (state_type, weights_type, aggregate_type)
  )

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial, tff.SERVER)

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(aggregate_type, tff.SERVER),
  )
  def next_fn(state, weights, aggregate):
    state, weights, measurements = tff.federated_map(
      apply, (state, weights, aggregate)
    )
    return tff.templates.MeasuredProcessOutput(state, weights, measurements)

  if optimizer is None:
    return tff.learning.templates.FinalizerProcess(initialize, next_fn)

  @tff.tensorflow.computation(state_type)
  def get_hparams(state):
    return optimizer.get_hparams(state['optimizer'])

  @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
  def set_hparams(state, hparams):
    state['optimizer'] = optimizer.set_hparams(state['optimizer'], hparams)
    return state

  return tff.learning.templates.FinalizerProcess(
    initialize,
    next_fn,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )


def build_server_training(
  server: ServerTraining,
  combine,
  *,
  server_start,
  before_training=None,
  weights_type: tff.Type,
  aggregate_type: tff.Type,
  seed: int,
) -> tff.learning.templates.FinalizerProcess:
  """Trains the server's model on its labels, then joins it with the clients'.

  The state holds the round, the seed and the server optimizer's state, which
  goes on across rounds. A result that is not finite leaves weights and
  optimizer as they are, and counts in `update_non_finite`.

  Args:
    server: How the server trains.
    combine: `(weights, server_weights, aggregate) -> weights`, in TensorFlow;
      `server_weights` are stacked, `[R, ...]`.
    server_start: `(weights) -> ModelWeights`, where the server starts from.
    before_training: `(weights, aggregate) -> weights`, from the global weights
      to those that the server trains; by default they are the same.
    weights_type: Unplaced type of the global model weights.
    aggregate_type: Unplaced type of the aggregator's result.
    seed: The run's seed.

  Returns:
    A `tff.learning.templates.FinalizerProcess` whose measurements are
    `<server=<loss, accuracy>, update_non_finite=int32>`.
  """

  def initial_state():
    return collections.OrderedDict(
      optimizer=server.initial_optimizer_state(),
      round=tf.constant(0, tf.int32),
      seed=tf.constant(seed, tf.int32),
    )

  def update(state, weights, aggregate):
    start = weights
    if before_training is not None:
      start = before_training(weights, aggregate)
    trained = server.run(
      server_start(start),
      state['optimizer'],
      seed=state['seed'],
      round_num=state['round'],
    )
    combined = combine(weights, trained.weights, aggregate)
    finite = all_finite((combined, trained.optimizer_state))
    weights, optimizer_state = _choose(
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

  return _build_finalizer(
    initial_state,
    update,
    weights_type=weights_type,
    aggregate_type=aggregate_type,
    optimizer=server,
  )


def build_no_server_training(
  combine, *, weights_type: tff.Type, aggregate_type: tff.Type
) -> tff.learning.templates.FinalizerProcess:
  """Joins the clients' results; for servers without data.

  A result that is not finite leaves the weights as they are, and counts in
  `update_non_finite`.

  Args:
    combine: `(weights, aggregate) -> weights`, in TensorFlow.
    weights_type: Unplaced type of the global model weights.
    aggregate_type: Unplaced type of the aggregator's result.

  Returns:
    A `tff.learning.templates.FinalizerProcess` without hyperparameters, whose
    measurements are `<update_non_finite=int32>`.
  """

  def update(state, weights, aggregate):
    combined = combine(weights, aggregate)
    finite = all_finite(combined)
    measurements = collections.OrderedDict(
      update_non_finite=tf.cast(~finite, tf.int32)
    )
    return state, _choose(finite, combined, weights), measurements

  def no_state():
    return collections.OrderedDict()

  return _build_finalizer(
    no_state,
    update,
    weights_type=weights_type,
    aggregate_type=aggregate_type,
  )


def _choose(condition, if_true, if_false):
  """Returns one of two structures of tensors, by a `bool` scalar."""
  return tf.nest.map_structure(
    lambda a, b: tf.where(condition, a, b), if_true, if_false
  )


def build_apply_mean_delta(
  server_optimizer: tff.learning.optimizers.Optimizer,
  weights_type: tff.Type,
  trainable_spec: Any,
  *,
  restart_round: int | None = None,
) -> tff.learning.templates.FinalizerProcess:
  """Applies the mean model delta with a server optimizer, as FedAvg/FedOpt do.

  The negative delta of the trainable weights is the optimizer's gradient; the
  delta of the non-trainable ones (moving statistics) is added as it is. An
  aggregate that is not finite leaves weights and optimizer as they are, and
  counts in `update_non_finite`.

  Args:
    server_optimizer: SGD with learning rate 1 is plain FedAvg.
    weights_type: Unplaced type of the `ModelWeights`.
    trainable_spec: `tf.TensorSpec`s of the trainable weights.
    restart_round: If given, after so many rounds the optimizer starts afresh,
      with the hyperparameters that it has.

  Returns:
    A `tff.learning.templates.FinalizerProcess`.
  """

  counts_rounds = restart_round is not None

  def initial_state():
    state = collections.OrderedDict(
      optimizer=server_optimizer.initialize(trainable_spec)
    )
    if counts_rounds:
      state['round'] = tf.constant(0, tf.int32)
    return state

  def begin(state):
    if not counts_rounds:
      return state['optimizer']
    hparams = server_optimizer.get_hparams(state['optimizer'])
    fresh = server_optimizer.set_hparams(
      server_optimizer.initialize(trainable_spec), hparams
    )
    return _choose(
      tf.equal(state['round'], restart_round), fresh, state['optimizer']
    )

  def update(state, weights, delta):
    gradients = tf.nest.map_structure(tf.negative, delta.trainable)
    before = begin(state)
    optimizer_state, trainable = server_optimizer.next(
      before, weights.trainable, gradients
    )
    non_trainable = tf.nest.map_structure(
      tf.add, weights.non_trainable, delta.non_trainable
    )
    finite = all_finite(delta)
    optimizer_state, weights = _choose(
      finite,
      (optimizer_state, ModelWeights(trainable, non_trainable)),
      (before, weights),
    )
    state = collections.OrderedDict(optimizer=optimizer_state) | (
      {'round': state['round'] + 1} if counts_rounds else {}
    )
    measurements = collections.OrderedDict(
      update_non_finite=tf.cast(~finite, tf.int32)
    )
    return state, weights, measurements

  return _build_finalizer(
    initial_state,
    update,
    weights_type=weights_type,
    aggregate_type=weights_type,
    optimizer=server_optimizer,
  )
