"""The records that all builders take.

A `TrainingPlan` says how a participant trains: one for the clients, and another
one for the server where it trains. A `Wiring` says what holds for the rounds of
any algorithm. TensorFlow is imported when it is first needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from etils import epy

from tff_ssl import checks, protocols
from tff_ssl import shared_settings as shared

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import compat, optimizers

_CHECKED = (
  shared.BATCH_SIZE,
  shared.LABELLED_BATCH_SIZE,
  shared.LOCAL_STEPS,
  shared.LOCAL_EPOCHS,
)

CORRUPTIONS = ('nan', 'exploding', 'flipped_labels', 'flipped_signs', 'stale')


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
  """By which steps a participant trains, whatever it minimises.

  Where a field is `None`, the builder's own default counts, as its page says.

  Attributes:
    optimizer: A `tff.learning.optimizers.Optimizer`.
    batch_size: Examples in a minibatch (B).
    steps: Number of steps in a round (T). The examples are reshuffled and
      repeated as often as it takes, and every minibatch is full.
    epochs: Passes over the examples in a round (E), in the place of `steps`.
    schedule: A function of the global step (`int32` scalar) to a `float32`
      factor on the learning rate; an `optimizers.RoundSchedule` takes the
      rounds before the present one instead. The optimizer must have a
      hyperparameter `learning_rate` then. Without one, the rate is constant.
    steps_per_round: How far the global step advances per round; by default
      `steps`. With `epochs`, a schedule needs it.
    labelled_batch_size: Examples in a second minibatch beside the first,
      `labelled`, of those examples that have a label (reshuffled and repeated;
      empty if none has one). It is for objectives that ask for one, and by
      default as large as the first.
    epoch_batches: With `epochs`, where passes end: 'separate', 'continuous' or
      'matched'; see `tff_ssl.templates.minibatches`.
  """

  optimizer: tff.learning.optimizers.Optimizer | None = None
  batch_size: int | None = None
  steps: int | None = None
  epochs: int | None = None
  schedule: Callable[[tf.Tensor], tf.Tensor] | None = None
  steps_per_round: int | None = None
  labelled_batch_size: int | None = None
  epoch_batches: str | None = None

  def __post_init__(self):
    checks.integers_at_least(1, steps_per_round=self.steps_per_round)
    for setting in _CHECKED:
      value = getattr(self, setting.argument_name)
      if value is not None:
        setting.check(value)
    if self.optimizer is not None and not isinstance(
      self.optimizer, tff.learning.optimizers.Optimizer
    ):
      raise TypeError(
        f'The optimizer is a {type(self.optimizer).__name__}: give a '
        'tff.learning.optimizers.Optimizer, such as '
        'tff_ssl.build_nesterov_sgd(0.03).'
      )

  def over(self, defaults: TrainingPlan, **more) -> TrainingPlan:
    """Returns this plan, with other values where it has none.

    Args:
      defaults: A builder's own plan. Its `steps` and `epochs` count where this
        plan has neither, its `epoch_batches` where this plan has no `steps`.
      **more: Defaults that `defaults` cannot hold, such as an optimizer: it
        stands in a signature, and an optimizer imports TensorFlow.
    """
    values = {**_given(defaults), **more}
    own = _given(self)
    if own.keys() & {'steps', 'epochs'}:
      values.pop('steps', None)
      values.pop('epochs', None)
    if 'steps' in own:
      values.pop('epoch_batches', None)
    return TrainingPlan(**{**values, **own})

  def on_clock_of(self, other: TrainingPlan) -> TrainingPlan:
    """Returns this plan with the global step of another one.

    Args:
      other: The plan whose steps per round count, unless this plan says how far
        the global step advances.
    """
    if self.steps_per_round is not None:
      return self
    return dataclasses.replace(self, steps_per_round=other.global_steps)

  def check_schedule(self) -> None:
    """Raises `ValueError` where a schedule of steps cannot count them."""
    if (
      self.schedule is not None
      and not isinstance(self.schedule, optimizers.RoundSchedule)
      and self.global_steps is None
    ):
      raise ValueError(
        f'A schedule counts steps, which epochs={self.epochs} leaves open: '
        'give steps instead, or steps_per_round.'
      )

  @property
  def global_steps(self) -> int | None:
    """How far the global step advances per round, if that is known."""
    return self.steps if self.steps_per_round is None else self.steps_per_round

  def at_step(
    self,
    state: protocols.OptimizerState,
    base_rate: tf.Tensor | None,
    round_num: tf.Tensor,
    step: tf.Tensor,
  ) -> protocols.OptimizerState:
    """Returns the optimizer state with the learning rate of a step.

    Args:
      state: The optimizer state.
      base_rate: The learning rate that the schedule's factor multiplies.
      round_num: `int32` scalar, the number of rounds before this one.
      step: `int32` scalar, the number of steps of the round before this one.
    """
    if self.schedule is None:
      return state
    if isinstance(self.schedule, optimizers.RoundSchedule):
      time = round_num
    else:
      time = round_num * self.global_steps + step
    return self.with_learning_rate(state, base_rate * self.schedule(time))

  def learning_rate(self, state: protocols.OptimizerState) -> tf.Tensor | None:
    """Returns the learning rate, if there is a schedule to change it."""
    if self.schedule is None:
      return None
    return self.optimizer.get_hparams(state)['learning_rate']

  def with_learning_rate(
    self, state: protocols.OptimizerState, rate: tf.Tensor
  ) -> protocols.OptimizerState:
    """Returns the optimizer state with another learning rate."""
    hparams = self.optimizer.get_hparams(state)
    hparams['learning_rate'] = rate
    return self.optimizer.set_hparams(state, hparams)


def _given(plan):
  return {
    field.name: value
    for field in dataclasses.fields(plan)
    if (value := getattr(plan, field.name)) is not None
  }


@dataclasses.dataclass(frozen=True)
class Corruption:
  """What goes wrong at corrupt clients.

  Which clients are corrupt stands in their context
  (`ClientDataSpec(has_faults=True)`). Only what a client sends for the model
  changes, or what it trains on; its metrics and its own state stay as they are.
  A client of weight 0 sends what a sound one does.

  Attributes:
    kind: 'nan': its change of the model is not a number. 'exploding': it is
      1e6 times as large. 'flipped_signs': it points the other way.
      'flipped_labels': it trains with the label L - 1 - y in the place of y, as
      in Fang et al. (arXiv 1911.11815), Section V-A. 'stale': it trains from
      the first model of the run in every round.
    num_labels: L, for flipped labels. By default, L - 1 is the largest label of
      the client itself, as suits labels that are numbers of its sets.
  """

  kind: str
  num_labels: int | None = None

  def __post_init__(self):
    checks.choice(CORRUPTIONS, kind=self.kind)
    checks.integers_at_least(1, num_labels=self.num_labels)
    if self.num_labels is not None and self.kind != 'flipped_labels':
      raise ValueError(
        f'num_labels={self.num_labels} has no effect on kind={self.kind!r}: '
        'leave it out.'
      )


@dataclasses.dataclass(frozen=True)
class Wiring:
  """What holds for the rounds of any algorithm.

  How messages are sent and results meet, as TFF's own builders take it, with
  bounds of weights and of cohorts; the seed; what is evaluated; and, in a
  simulation, what goes wrong.

  Attributes:
    model_distributor: By default the broadcast of weights, round and seed. One
      of TFF's own sends the weights; round and seed then go beside it.
    model_aggregator: A weighted or unweighted aggregation factory; each builder
      says what it takes by default, and what it refuses.
    metrics_aggregator: As in TFF's builders, a function of the metrics'
      finalizers, or of these and the type of the metrics; by default
      `tff.learning.metrics.sum_then_finalize`.
    seed: Root of all randomness, in [0, 2**31).
    ema_decay: Where it is above 0, `get_model_weights` gives a moving average
      of the model over rounds (`tff_ssl.templates.moving_average`), with
      that decay per round, in [0, 1). The state holds it; clients see none of
      it.
    min_group_size: The fewest clients whose result is shown to those who see
      models and metrics, at least 1; of a group, where there are groups. With
      fewer that count, the group (or the round) has no result, and a round has
      no metrics. For secure sums, where clients may drop out; the server itself
      is kept from small sums by the least cohort of its platform alone. It does
      not go with noise, which hides numbers of clients better.
    max_client_weight: The largest weight of a client among the others, above 0;
      by default there is none. A larger one becomes this one, so that a client
      that claims many examples moves the mean no more than one that has them.
    corruption: What goes wrong at corrupt clients, in a simulation
      (`tff_ssl.Corruption`); by default nothing.

  Raises:
    TypeError: If the distributor or the aggregator is something else.
    ValueError: If a number is out of range.
  """

  model_distributor: tff.learning.templates.DistributionProcess | None = None
  model_aggregator: (
    tff.aggregators.WeightedAggregationFactory
    | tff.aggregators.UnweightedAggregationFactory
    | None
  ) = None
  metrics_aggregator: Callable[..., compat.Computation] | None = None
  seed: int = 0
  ema_decay: float = 0.0
  min_group_size: int = 1
  max_client_weight: float | None = None
  corruption: Corruption | None = None

  def __post_init__(self):
    shared.EMA_DECAY.check(self.ema_decay)
    checks.integers_at_least(1, min_group_size=self.min_group_size)
    shared.MAX_CLIENT_WEIGHT.check(self.max_client_weight)
    for name, method, wanted in (
      (
        'model_distributor',
        'next',
        'a tff.learning.templates.DistributionProcess',
      ),
      (
        'model_aggregator',
        'create',
        'a factory of tff.aggregators, such as tff.aggregators.MeanFactory()',
      ),
    ):
      value = getattr(self, name)
      if value is not None and not hasattr(value, method):
        raise TypeError(f'{name} is a {type(value).__name__}: give {wanted}.')
