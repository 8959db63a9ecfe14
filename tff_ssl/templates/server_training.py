"""The server trains on its labelled examples, as well as the clients on theirs.

```
build_server_training      beside the clients, or on their mean (Zhang et al.)
build_alternate_training   after them, on the model that they gave it (SemiFL)
build_server_first         alone, in the first rounds (DataSharing)
```
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat, objectives, protocols, randomness, stacks
from tff_ssl.models import functional
from tff_ssl.plans import ServerPlan
from tff_ssl.templates import (
  client_data,
  client_task,
  faults,
  finalizers,
  local_training,
  static_statistics,
)

ModelWeights: TypeAlias = tff.learning.models.ModelWeights

_NO_LABEL = (
  'server.data has no example with a label, but the server trains on labels: '
  'give it some, or choose a process whose server does not train.'
)


@dataclasses.dataclass(frozen=True)
class ServerTraining:
  """The server's own training on its labelled examples (Zhang et al., Eq. 3).

  The server is a participant with the same loop as any client. Its optimizer
  state (momentum) is a part of the finalizer's state, and so outlives the
  round. The server may train several replicas from one start, each with its own
  batches and momentum.

  Attributes:
    data: A no-argument `tff.Computation` that returns the labelled examples, a
      sequence of `<x=..., y=...>`. It runs inside the round: let it read
      larger sets from a file.
    num_replicas: R >= 1.
  """

  training: local_training.LocalTraining
  data: compat.Computation
  num_replicas: int = 1

  @classmethod
  def of(
    cls,
    plan: ServerPlan,
    model: functional.FunctionalModel,
    views: protocols.Views,
    **more,
  ):
    """Returns the training of a model by its cross-entropy with the labels."""
    objective = objectives.Supervised(views, class_weights=plan.class_weights)
    training = local_training.LocalTraining(model, objective, plan)
    return cls(training, plan.data, **more)

  def __post_init__(self):
    signature = getattr(self.data, 'type_signature', None)
    if (
      signature is None
      or signature.parameter is not None
      or not isinstance(signature.result, compat.SequenceType)
    ):
      raise TypeError(
        'server.data must be a tff.Computation without arguments that returns '
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
  ) -> client_task.TrainingResult:
    """Trains one round, in TensorFlow; all replicas start from `start`.

    The optimizer's state is stacked, `[R, ...]`, and so is all of the result.
    `seed` is the run's.
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

    seeds = [randomness.server_seed(seed, round_num)]
    if self.num_replicas > 1:
      root = randomness.fold_in(seeds[0], randomness.Purpose.REPLICA)
      seeds = [randomness.fold_in(root, i) for i in range(self.num_replicas)]
    return stacks.stack(
      train(stacks.row(optimizer_state, i), replica_seed)
      for i, replica_seed in enumerate(seeds)
    )

  def read_examples(self) -> client_task.Examples:
    """Returns the labelled examples, an ordered dict of tensors.

    Without any, this is a `ValueError`, or an `InvalidArgumentError` in the
    round, where their type does not say so.
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


@dataclasses.dataclass(frozen=True)
class FineTuning(ServerTraining):
  """The server's training of one model, with a fresh momentum each round.

  Attributes:
    statistics: How the statistics of batch normalisation are computed anew
      afterwards, on the labelled examples.
  """

  statistics: static_statistics.StaticStatistics = dataclasses.field(
    kw_only=True
  )

  @property
  def replaces_statistics(self) -> bool:
    """Whether no non-trainable weight stays as it was before the training."""
    return None not in self.statistics.momenta

  def run(self, start, optimizer_state, *, seed, round_num):
    """Trains one round from `start`; see `ServerTraining.run`."""
    fresh = self.set_hparams(
      self.initial_optimizer_state(), self.get_hparams(optimizer_state)
    )
    result = super().run(start, fresh, seed=seed, round_num=round_num)
    if not self.statistics.has_any:
      return result
    weights = self.statistics.recompute(
      stacks.row(result.weights, 0),
      self.read_examples()['x'],
      randomness.fold_in(
        randomness.server_seed(seed, round_num), randomness.Purpose.STATISTICS
      ),
    )
    return result._replace(weights=stacks.stack([weights]))


def build_server_training(
  server: ServerTraining,
  combine: Callable[[Any, ModelWeights, Any], Any],
  *,
  server_start: Callable[[Any, Any], ModelWeights],
  seed: int,
  **types: compat.Type,
) -> tff.learning.templates.FinalizerProcess:
  """Trains the server's model on its labels, and joins it with the aggregate.

  This finalizer and the two below have the hyperparameters of the server's
  training, and measure `<server=<loss, accuracy>, update_non_finite=int32>`.
  What is not finite leaves weights and optimizer as they are, and is counted.

  Args:
    server: How the server trains.
    combine: `(weights, server_weights, aggregate) -> weights`, in TensorFlow;
      `server_weights` are stacked, `[R, ...]`.
    server_start: `(weights, aggregate) -> ModelWeights`, in TensorFlow; where
      the server starts from.
    seed: The run's seed.
    **types: Those of `finalizers.build_finalizer`.
  """

  def step(state, weights, aggregate):
    trained = _train(server, server_start(weights, aggregate), state)
    combined = combine(weights, trained.weights, aggregate)
    return combined, trained.optimizer_state, _measured(trained)

  return finalizers.build_finalizer(
    lambda: _initial_state(server, seed),
    _guarded(step),
    optimizer=server,
    **types,
  )


def build_alternate_training(
  server: FineTuning,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  seed: int,
  weights_type: compat.Type,
  aggregate_type: compat.Type,
) -> tff.learning.templates.FinalizerProcess:
  """Applies the mean delta, then trains the server from there.

  Diao et al., SemiFL (arXiv 2106.01432): the server fine-tunes the aggregated
  model on its labels, which corrects what wrong pseudo-labels did to it. In
  Zhang et al. (`tff_ssl.algorithms.grouping`) it trains beside the clients.

  Each of the two is left out by itself where it is not finite, and counts.
  """
  spec = compat.type_to_tf_tensor_specs(weights_type['trainable'])

  def initial_state():
    state = _initial_state(server, seed)
    state['mean_delta'] = server_optimizer.initialize(spec)
    return state

  def step(state, weights, aggregate):
    del aggregate
    trained = _train(server, weights, state)
    weights = stacks.row(trained.weights, 0)
    return weights, trained.optimizer_state, _measured(trained)

  def update(state, weights, delta):
    state['mean_delta'], weights, applied = finalizers.apply_mean_delta(
      server_optimizer, state['mean_delta'], weights, delta
    )
    state, weights, measurements = _guarded(step)(state, weights, delta)
    measurements['update_non_finite'] += applied['update_non_finite']
    return state, weights, measurements

  return finalizers.build_finalizer(
    initial_state,
    update,
    weights_type=weights_type,
    aggregate_type=aggregate_type,
    optimizer=server,
    process_class=(
      finalizers.StatisticsReplacingProcess
      if server.replaces_statistics
      else tff.learning.templates.FinalizerProcess
    ),
  )


def build_server_first(
  server: ServerTraining,
  first_rounds: int,
  *,
  seed: int,
  **types: compat.Type,
) -> tff.learning.templates.FinalizerProcess:
  """Trains the server's model first, and then takes the clients' mean.

  In the first rounds the clients' mean delta is not looked at. In later ones,
  the server's metrics are NaN. The server has one replica.
  """

  def step(state, weights, delta):
    def train():
      trained = _train(server, weights, state)
      return (
        stacks.row(trained.weights, 0),
        trained.optimizer_state,
        _measured(trained),
      )

    def average():
      none = collections.OrderedDict(
        (name, tf.constant(float('nan')))
        for name in server.training.metric_names
      )
      mean = tf.nest.map_structure(tf.add, weights, delta)
      return mean, state['optimizer'], none

    return tf.cond(state['round'] < first_rounds, train, average)

  return finalizers.build_finalizer(
    lambda: _initial_state(server, seed),
    _guarded(step),
    optimizer=server,
    **types,
  )


def _initial_state(server, seed) -> finalizers.State:
  """Returns `<optimizer, round=int32, seed=int32>`, tensors."""
  return collections.OrderedDict(
    optimizer=server.initial_optimizer_state(),
    round=tf.constant(0, tf.int32),
    seed=tf.constant(seed, tf.int32),
  )


def _train(server, start, state) -> client_task.TrainingResult:
  return server.run(
    start, state['optimizer'], seed=state['seed'], round_num=state['round']
  )


def _guarded(step):
  """Returns the update of a finalizer in which the server trains.

  Args:
    step: `(state, weights, aggregate) -> (weights, optimizer state, server's
      metrics)`, in TensorFlow.
  """

  def update(state, weights, aggregate):
    *new, metrics = step(state, weights, aggregate)
    finite = faults.all_finite(new)
    weights, optimizer_state = faults.choose(
      finite, new, [weights, state['optimizer']]
    )
    state = collections.OrderedDict(
      state, optimizer=optimizer_state, round=state['round'] + 1
    )
    measurements = collections.OrderedDict(
      server=metrics, **finalizers.non_finite(finite)
    )
    return state, weights, measurements

  return update


def _measured(trained) -> collections.OrderedDict[str, tf.Tensor]:
  """Returns the metrics of all replicas together."""
  return ratios(
    tf.nest.map_structure(
      lambda replicas: tf.reduce_sum(replicas, 0), trained.metrics
    )
  )


def ratios(
  metrics: protocols.Metrics,
) -> collections.OrderedDict[str, tf.Tensor]:
  """Turns (numerator, denominator) pairs into values; NaN where 0/0."""
  return collections.OrderedDict(
    (name, pair[0] / pair[1]) for name, pair in metrics.items()
  )
