"""The local training loop: the one place where weights meet examples.

Clients, the server and central training all run this loop. It is one compiled
`tf.while_loop` over minibatches that are cut out of tensors, because op
overhead per step, and not arithmetic, is what small models pay for.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks, optimizers, randomness
from tff_ssl.templates import minibatches, prediction

ModelWeights = tff.learning.models.ModelWeights


# T of paper 1, where neither steps nor epochs are given.
_DEFAULT_STEPS = 16


def steps_or_epochs(
  local_steps: int | None,
  local_epochs: int | None,
  default_epochs: int | None = None,
) -> dict[str, int | None]:
  """Returns `LocalTraining`'s `steps` and `epochs`.

  Args:
    local_steps: Steps, where they are given.
    local_epochs: Epochs, likewise.
    default_epochs: Epochs where neither is; without, it is 16 steps.
  """
  if local_steps is None and local_epochs is None:
    local_epochs = default_epochs
    local_steps = _DEFAULT_STEPS if default_epochs is None else None
  return {'steps': local_steps, 'epochs': local_epochs}


class TrainingResult(NamedTuple):
  """What a training run gives.

  Attributes:
    weights: The new `ModelWeights`.
    optimizer_state: The optimizer's state after the last step.
    metrics: Ordered dict: metric name -> `float32 [2]`, numerator and
      denominator summed over all steps.
    num_examples: `float32` scalar, examples processed, repetitions counted.
    passes: `float32 [2]`, examples that went forward through the model and
      back; see `prediction.Predictor.passes`.
    client_state: The client's new state, where clients have one.
    num_steps: `int32` scalar, steps taken.
    shared_change: What the client wants of the state that all clients share,
      where there is one (`client_work.SharedState`).
  """

  weights: Any
  optimizer_state: Any
  metrics: Any
  num_examples: tf.Tensor
  passes: tf.Tensor
  client_state: Any = ()
  num_steps: Any = ()
  shared_change: Any = ()


@dataclasses.dataclass(frozen=True)
class LocalTraining:
  """How one participant trains.

  Exactly one of `steps` and `epochs` is given.

  Attributes:
    model: The `FunctionalModel`.
    objective: `objective(predict, batch, anchors, seed) -> (loss, metrics)`;
      see `tff_ssl.objectives`.
    optimizer: A `tff.learning.optimizers.Optimizer`.
    batch_size: Examples in a minibatch (B); `None` where whole sets are.
    steps: Number of steps (T). The examples are reshuffled and repeated as
      often as it takes, and every minibatch is full.
    epochs: Passes over the examples (E).
    schedule: Optional function of the global step (`int32` scalar) to a
      `float32` factor on the learning rate; an `optimizers.RoundSchedule`
      takes the rounds before the present one instead. The optimizer must have
      a hyperparameter `learning_rate` then.
    steps_per_round: How far the global step advances per round; by default
      `steps`. With `epochs`, a schedule needs it.
    labelled_batch_size: If given, each batch holds a second minibatch beside
      its own, `labelled`, of this many of those examples that have a label
      (reshuffled and repeated; empty where none has one).
    epoch_batches: With `epochs`, where passes end; see `minibatches`.
    selection: Which examples minibatches are cut from; by default those that
      the objective asks for (its `rows`).
  """

  model: Any
  objective: Any
  optimizer: tff.learning.optimizers.Optimizer
  batch_size: int | None
  steps: int | None = None
  epochs: int | None = None
  schedule: Callable[[tf.Tensor], tf.Tensor] | None = None
  steps_per_round: int | None = None
  labelled_batch_size: int | None = None
  epoch_batches: str = 'separate'
  selection: minibatches.Selection | None = None

  def __post_init__(self):
    if self.selection is None:
      rows = getattr(self.objective, 'rows', 'all')
      # The class is frozen, and this is its own default.
      object.__setattr__(self, 'selection', minibatches.Selection(rows))
    if not isinstance(self.optimizer, tff.learning.optimizers.Optimizer):
      raise TypeError(
        f'The optimizer is a {type(self.optimizer).__name__}: give a '
        'tff.learning.optimizers.Optimizer, such as '
        'tff_ssl.build_nesterov_sgd(0.03).'
      )
    self._minibatches()
    checks.integers_at_least(
      1,
      steps_per_round=self.steps_per_round,
      labelled_batch_size=self.labelled_batch_size,
    )
    if (
      self.schedule is not None
      and not isinstance(self.schedule, optimizers.RoundSchedule)
      and self._global_steps is None
    ):
      raise ValueError(
        f'A schedule counts steps, which epochs={self.epochs} leaves open: '
        'give steps instead, or steps_per_round.'
      )

  def _minibatches(self) -> minibatches.Minibatches:
    return minibatches.Minibatches(
      **{
        field.name: getattr(self, field.name)
        for field in dataclasses.fields(minibatches.Minibatches)
      }
    )

  @property
  def _global_steps(self) -> int | None:
    return self.steps if self.steps_per_round is None else self.steps_per_round

  @property
  def metric_names(self) -> tuple[str, ...]:
    """Names of the metrics that `run` reports."""
    return tuple(self.objective.metric_names)

  def initial_optimizer_state(self):
    """Returns a fresh optimizer state (tensors)."""
    return self.optimizer.initialize(self.model.weights_spec.trainable)

  def initial_hparams(self):
    """Returns the optimizer's hyperparameters, an ordered dict of tensors."""
    return self.optimizer.get_hparams(self.initial_optimizer_state())

  def run(
    self,
    start: ModelWeights,
    examples: collections.OrderedDict[str, tf.Tensor],
    *,
    seed: tf.Tensor,
    round_num: tf.Tensor,
    optimizer_state=None,
    hparams=None,
    active: tf.Tensor | bool = True,
    anchors=None,
    constants: collections.OrderedDict[str, tf.Tensor] | None = None,
  ) -> TrainingResult:
    """Trains from `start` on `examples`.

    Args:
      start: `ModelWeights` of tensors.
      examples: Tensors with a leading dimension n (`client_data.collect`). With
        n = 0 nothing is trained.
      seed: `int32 [2]`.
      round_num: `int32` scalar, the number of rounds before this one.
      optimizer_state: State to go on from; by default a fresh one.
      hparams: Optimizer hyperparameters to set before the first step.
      active: Whether to train at all; a `bool` scalar, maybe a tensor.
      anchors: What the objective compares with; by default `start`.
      constants: Tensors of this participant that every minibatch carries beside
        its examples, under names that these do not have (such as FedUL's
        `class_priors`).

    Returns:
      A `TrainingResult`.
    """
    if optimizer_state is None:
      optimizer_state = self.initial_optimizer_state()
    if hparams is not None:
      optimizer_state = self.optimizer.set_hparams(optimizer_state, hparams)
    base_rate = None
    if self.schedule is not None:
      base_rate = self.optimizer.get_hparams(optimizer_state)['learning_rate']

    batches = self._minibatches().draw(examples['y'], seed)
    num_steps = tf.where(active, batches.num_steps, 0)
    labelled = None
    if self.labelled_batch_size is not None:
      labelled = minibatches.draw_labelled(
        examples['y'], self.labelled_batch_size, batches.num_steps, seed
      )
    take_step = self._build_step(start if anchors is None else anchors)

    def body(step, weights, state, totals):
      batch = batches.cut(examples, step)
      if labelled is not None:
        batch['labelled'] = labelled.cut(examples, step)
      batch.update(constants or {}, step=step)
      if base_rate is not None:
        state = self.at_step(state, base_rate, round_num, step)
      step_seed = randomness.fold_in(
        randomness.fold_in(seed, randomness.Purpose.STEP), step
      )
      weights, state, sums = take_step(weights, state, batch, step_seed)
      return step + 1, weights, state, totals + sums

    _, weights, optimizer_state, totals = tf.while_loop(
      lambda step, *_: step < num_steps,
      body,
      (
        tf.constant(0),
        tf.nest.map_structure(tf.convert_to_tensor, start),
        optimizer_state,
        tf.zeros([2 + len(self.metric_names), 2]),
      ),
    )
    if base_rate is not None:
      optimizer_state = self._with_learning_rate(optimizer_state, base_rate)
    metrics = collections.OrderedDict(
      zip(self.metric_names, tf.unstack(totals[2:]), strict=True)
    )
    return TrainingResult(
      weights,
      optimizer_state,
      metrics,
      totals[0, 0],
      totals[1],
      num_steps=num_steps,
    )

  def at_step(self, state, base_rate, round_num, step):
    """Returns the optimizer state with the learning rate of a step.

    Args:
      state: The optimizer state.
      base_rate: The learning rate that the schedule's factor multiplies.
      round_num: `int32` scalar, the number of rounds before this one.
      step: `int32` scalar, the number of steps of the round before this one.
    """
    if self.schedule is None:
      return state
    rate = base_rate * self.schedule(self._time(round_num, step))
    return self._with_learning_rate(state, rate)

  def _time(self, round_num, step):
    """Returns what the schedule takes for the time."""
    if isinstance(self.schedule, optimizers.RoundSchedule):
      return round_num
    return round_num * self._global_steps + step

  def _with_learning_rate(self, state, rate):
    hparams = self.optimizer.get_hparams(state)
    hparams['learning_rate'] = rate
    return self.optimizer.set_hparams(state, hparams)

  def _build_step(self, anchors):
    """Returns the compiled step; weights and batch are its arguments."""

    # As a function of its own the step keeps the graph optimiser from choosing
    # the slow kernel of MaxPoolGrad, which it does for some loops over tensors.
    @tf.function(autograph=False, experimental_attributes={'_noinline': True})
    def take_step(weights, state, batch, seed):
      result = prediction.objective_gradient(
        self.model, self.objective, weights, batch, anchors, seed
      )
      state, trainable = self.optimizer.next(
        state, weights.trainable, result.gradient
      )
      size = tf.cast(tf.shape(batch['y'])[0], tf.float32)
      sums = tf.stack(
        [tf.stack([size, size]), result.passes]
        + [tf.stack(result.metrics[name]) for name in self.metric_names]
      )
      new_weights = ModelWeights(trainable, result.non_trainable)
      return new_weights, state, sums

    return take_step
