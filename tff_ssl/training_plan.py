"""How a participant trains: optimizer, minibatches, and how many of them.

Builders take a `TrainingPlan` for clients, and another one for the server where
it trains. TensorFlow is imported when it is first needed.
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

  from tff_ssl import optimizers

_CHECKED = (
  shared.BATCH_SIZE,
  shared.LABELLED_BATCH_SIZE,
  shared.LOCAL_STEPS,
  shared.LOCAL_EPOCHS,
)


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
