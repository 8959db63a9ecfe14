"""The records that all builders take.

A `TrainingPlan` says how clients train, a `ServerPlan` how the server does that
has labelled examples, and a `Wiring` what holds for the rounds of any
algorithm. A builder's own records hold its defaults, and say by these what it
takes. TensorFlow is imported when it is first needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from etils import epy

from tff_ssl import checks, protocols
from tff_ssl import shared_settings as shared
from tff_ssl.common.setting import check_arguments

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl import compat, optimizers

_CHECKED = (*shared.LOCAL, shared.LABELLED_BATCH_SIZE, shared.CLIENT_MOMENTUM)

_Plan = TypeVar('_Plan', bound='TrainingPlan')

CORRUPTIONS = (
  *('nan', 'overflow', 'exploding'),
  *('flipped_labels', 'flipped_signs', 'stale'),
)


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
  """By which steps a participant trains, whatever it minimises.

  Where a field is `None`, the builder's own default counts, as its page says. A
  builder refuses what it has no use for.

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
    client_momentum: What becomes of a client's momentum after the round.
      'reset': it starts afresh in each. 'slot': a client goes on with the
      momentum that the slot's client of the round before left; the client data
      name slots then (`ClientDataSpec.num_slots`). 'mean': with the mean of
      what all of them left. With one client, both are the momentum of central
      training. See `tff_ssl.templates.memories.client_momentum`.
    redrawn_mask_ratio: Share of a client's labels that is hidden, others in
      each pass, in [0, 1]; one is left. 0 for none.
  """

  optimizer: tff.learning.optimizers.Optimizer | None = None
  batch_size: int | None = None
  steps: int | None = None
  epochs: int | None = None
  schedule: Callable[[tf.Tensor], tf.Tensor] | None = None
  steps_per_round: int | None = None
  labelled_batch_size: int | None = None
  epoch_batches: str | None = None
  client_momentum: str | None = None
  redrawn_mask_ratio: float | None = None

  # What only some builders have a use for: those whose own plan has it.
  _of_some: ClassVar[tuple[str, ...]] = (
    'client_momentum',
    'redrawn_mask_ratio',
  )

  def __post_init__(self):
    self._check(_CHECKED)
    checks.integers_at_least(
      1, optional=True, steps_per_round=self.steps_per_round
    )
    if self.redrawn_mask_ratio is not None:
      checks.fractions(redrawn_mask_ratio=self.redrawn_mask_ratio)
    if self.optimizer is not None and not isinstance(
      self.optimizer, tff.learning.optimizers.Optimizer
    ):
      raise TypeError(
        f'The optimizer is a {type(self.optimizer).__name__}: give a '
        'tff.learning.optimizers.Optimizer, such as '
        'tff_ssl.build_nesterov_sgd(0.03).'
      )

  def _check(self, settings) -> None:
    for setting in settings:
      value = getattr(self, setting.argument_name)
      if value is not None:
        setting.check(value)

  def takes(self, field: str) -> bool:
    """Returns whether the builder whose own plan this is has a use for it."""
    if field not in self._of_some or getattr(self, field) is not None:
      return True
    return not _given(self)  # An empty plan does not tell.

  def over(self, defaults: _Plan, **more) -> _Plan:
    """Returns this plan, with other values where it has none.

    Args:
      defaults: A builder's own plan. Its `steps` and `epochs` count where this
        plan has neither, its `epoch_batches` where this plan has no `steps`.
      **more: Defaults that `defaults` cannot hold, such as an optimizer: it
        stands in a signature, and an optimizer imports TensorFlow.

    Raises:
      ValueError: If this plan has what the builder has no use for.
    """
    values = {**_given(defaults), **more}
    own = _given(self)
    for name, value in own.items():
      if not defaults.takes(name):
        raise ValueError(
          f'{name}={value!r} has no effect in this process: leave it out, or '
          'choose another process.'
        )
    if own.keys() & {'steps', 'epochs'}:
      values.pop('steps', None)
      values.pop('epochs', None)
    if 'steps' in own:
      values.pop('epoch_batches', None)
    return type(defaults)(**{**values, **own})

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


def _given(record):
  return {
    field.name: value
    for field in dataclasses.fields(record)
    if (value := getattr(record, field.name)) is not None
  }


@dataclasses.dataclass(frozen=True)
class ServerPlan(TrainingPlan):
  """How the server trains on its labelled examples, and what that counts for.

  Beside the fields of a `TrainingPlan`, it has these, and the same holds of
  them: `None` is the builder's default, and what it has no use for is refused.

  Attributes:
    data: No-argument `tff.Computation` that returns the labelled server set, a
      sequence of `<x=..., y=...>` (D_s).
    class_weights: d positive factors of the server's loss by class; by default
      1. Those of clients with labels are an argument of their objective.
    warmup_rounds: First rounds in which only the server trains.
    order: 'beside': the server trains from w_avg while the clients train, and
      its model is averaged with theirs (Zhang et al., arXiv 2008.11364, Eq. 7).
      'after': groups average their clients' models alone; the server trains
      from the mean of these averages, as in SemiFL (Diao et al., arXiv
      2106.01432). Its model becomes w_avg; groups deviate from it as Eq. 7 lets
      them (`tff_ssl.templates.groups.recentre`), but for the moving statistics
      of batch normalisation, which are the server's.
    weight: Weight of the server's model in each group's mean; a client has
      weight 1.
    global_momentum: beta_g, momentum of the clients' averaged change, in
      [0, 0.999]. With groups it takes `order='after'`
      (`tff_ssl.templates.groups.with_momentum`).
    replicas: Server models in a round, 'one' or 'per_group'.
    bn_statistics: Moving statistics of batch normalisation, 'averaged' or the
      server's own, 'local'.
  """

  data: compat.Computation | None = None
  class_weights: tuple[float, ...] | None = None
  warmup_rounds: int | None = None
  order: str | None = None
  weight: float | None = None
  global_momentum: float | None = None
  replicas: str | None = None
  bn_statistics: str | None = None

  _of_some = (
    *TrainingPlan._of_some,
    *('warmup_rounds', 'order', 'weight', 'global_momentum', 'replicas'),
    'bn_statistics',
  )

  def __post_init__(self):
    super().__post_init__()
    self._check((*shared.SERVER, shared.SERVER_REPLICAS))


@dataclasses.dataclass(frozen=True)
class Helpers:
  """How clients help each other (`tff_ssl.templates.helper_clients`).

  Attributes:
    client_state_dir: Absolute path of the folder where clients keep their
      models, for those they help; see `tff_ssl.templates.client_state`.
    num_helpers: H >= 1, helpers of a client, fewer than there are others.
    helper_interval: Rounds from one choice of helpers to the next.
  """

  client_state_dir: str | None = None
  num_helpers: int = 2
  helper_interval: int = 10

  def __post_init__(self):
    settings = (shared.NUM_HELPERS, shared.HELPER_INTERVAL)
    check_arguments(settings, vars(self))


@dataclasses.dataclass(frozen=True)
class Corruption:
  """What goes wrong at corrupt clients.

  Which clients are corrupt stands in their context
  (`ClientDataSpec(has_faults=True)`). Only what a client sends for the model
  changes, or what it trains on; its metrics and its own state stay as they are.
  A client of weight 0 sends what a sound one does.

  Attributes:
    kind: 'nan': its change of the model is not a number. 'overflow': it is 1e25
      times as large, a finite change whose norm is not. 'exploding': it is 1e6
      times as large. 'flipped_signs': it points the other way.
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
    checks.integers_at_least(1, optional=True, num_labels=self.num_labels)
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
      it, unless a builder says so. By default 0, or the builder's own.
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
      (`tff_ssl.Corruption`); by default nothing. Of several, the first is what
      goes wrong where the client's context has `corrupt=1`, and so on.

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
  ema_decay: float | None = None
  min_group_size: int = 1
  max_client_weight: float | None = None
  corruption: Corruption | Sequence[Corruption] | None = None

  def __post_init__(self):
    if self.ema_decay is not None:
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

  def over(self, defaults: Wiring) -> Wiring:
    """Returns this wiring, with a builder's own values where it has none."""
    return Wiring(**{**_given(defaults), **_given(self)})
