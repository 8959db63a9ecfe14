"""Optimizers and learning-rate schedules which TFF's own do not cover.

Each optimizer is a `tff.learning.optimizers.Optimizer`, for any builder that
takes one; some change what another one does with gradients. A schedule is a
function from the number of local steps taken since the start of training, over
all rounds, to a factor of the learning rate;
`tff.learning.optimizers.schedule_learning_rate` would count from zero again in
every round.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import checks

_LEARNING_RATE = tff.learning.optimizers.LEARNING_RATE_KEY
_MOMENTUM = 'momentum'
_WEIGHT_DECAY = 'weight_decay'
_VELOCITY = 'velocity'

Schedule = Callable[[Any], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class RoundSchedule:
  """A schedule over rounds, for participants that train for epochs.

  Attributes:
    factor: From the rounds before the present one, a scalar integer, to the
      float32 factor of the learning rate.
  """

  factor: Schedule

  def __call__(self, round_num) -> tf.Tensor:
    """Returns the factor after `round_num` rounds."""
    return self.factor(round_num)


class _NesterovSGD(tff.learning.optimizers.Optimizer):
  def __init__(self, learning_rate, momentum, nesterov, weight_decay):
    self._hparams = collections.OrderedDict(
      [(_LEARNING_RATE, float(learning_rate))]
    )
    if momentum:
      self._hparams[_MOMENTUM] = momentum
    if weight_decay:
      self._hparams[_WEIGHT_DECAY] = weight_decay
    self._nesterov = nesterov

  def initialize(self, specs):
    state = self._hparams.copy()
    if _MOMENTUM in state:
      state[_VELOCITY] = tf.nest.map_structure(
        lambda spec: tf.zeros(spec.shape, spec.dtype), specs
      )
    return state

  def next(self, state, weights, gradients):
    gradients = tff.learning.optimizers.handle_indexed_slices_gradients(
      gradients
    )
    tff.learning.optimizers.check_weights_gradients_match(weights, gradients)
    flat_weights = tf.nest.flatten(weights)
    flat_velocity = tf.nest.flatten(state.get(_VELOCITY, ()))
    for index, gradient in enumerate(tf.nest.flatten(gradients)):
      if gradient is None:
        continue
      weight = flat_weights[index]

      def hparam(key, dtype=weight.dtype):
        return tf.cast(state[key], dtype)

      if _WEIGHT_DECAY in state:
        gradient += hparam(_WEIGHT_DECAY) * weight
      if _VELOCITY in state:
        velocity = hparam(_MOMENTUM) * flat_velocity[index] + gradient
        flat_velocity[index] = velocity
        if self._nesterov:
          gradient += hparam(_MOMENTUM) * velocity
        else:
          gradient = velocity
      flat_weights[index] = weight - hparam(_LEARNING_RATE) * gradient

    new_state = state.copy()
    if _VELOCITY in state:
      new_state[_VELOCITY] = tf.nest.pack_sequence_as(
        state[_VELOCITY], flat_velocity
      )
    return new_state, tf.nest.pack_sequence_as(weights, flat_weights)

  def get_hparams(self, state):
    return collections.OrderedDict((key, state[key]) for key in self._hparams)

  def set_hparams(self, state, hparams):
    unknown = [key for key in hparams if key not in self._hparams]
    if unknown:
      raise ValueError(
        f'hparams holds {unknown}, but this optimizer has '
        f'{list(self._hparams)}: build it with nonzero values of those.'
      )
    return collections.OrderedDict(
      (key, hparams.get(key, value)) for key, value in state.items()
    )


def build_nesterov_sgd(
  learning_rate: float = 0.01,
  momentum: float = 0.9,
  nesterov: bool = True,
  weight_decay: float = 0.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds SGD with Nesterov momentum and coupled weight decay.

  For weights `w`, gradient `g` and velocity `v`, at first 0, one step is

  ```
  g <- g + weight_decay * w
  v <- momentum * v + g
  w <- w - learning_rate * (g + momentum * v)    with nesterov
  w <- w - learning_rate * v                     without
  ```

  the rule of PyTorch's SGD, with which the grouping paper trained (momentum
  0.9, weight decay 1e-4). The decay is an L2 penalty on every weight, and
  passes through the velocity; `tff.learning.optimizers.build_adamw` decouples
  it. A weight without a gradient (None) stays as it is.

  Args:
    learning_rate: Nonnegative number, or a scalar tensor.
    momentum: A number in [0, 1). With 0 there is no velocity in the state, and
      momentum is no hyperparameter.
    nesterov: Whether to step along `g + momentum * v`.
    weight_decay: A nonnegative number. With 0 it is no hyperparameter.

  Returns:
    A `tff.learning.optimizers.Optimizer`. Its state is an `OrderedDict` of the
    hyperparameters and, under 'velocity', a structure like the weights.

  Raises:
    ValueError: If an argument is out of range.
  """
  if not tf.is_tensor(learning_rate) and not 0 <= learning_rate < math.inf:
    raise ValueError(
      f'learning_rate is {learning_rate}: give a nonnegative number.'
    )
  if not 0 <= momentum < 1:
    raise ValueError(f'momentum is {momentum}: give a number in [0, 1).')
  checks.numbers_at_least(0, weight_decay=weight_decay)
  return _NesterovSGD(learning_rate, momentum, nesterov, weight_decay)


def build_grouping_sgd(
  learning_rate: float = 0.03,
) -> tff.learning.optimizers.Optimizer:
  """Builds the SGD of Zhang et al. (Table A.1): the default of every process.

  Args:
    learning_rate: 0.03 is the paper's for EMNIST, 0.146 its for CIFAR and SVHN.

  Returns:
    `build_nesterov_sgd` with momentum 0.9 and coupled weight decay 1e-4.
  """
  return build_nesterov_sgd(learning_rate, momentum=0.9, weight_decay=1e-4)


def build_semifl_sgd(
  learning_rate: float = 0.03,
) -> tff.learning.optimizers.Optimizer:
  """Builds the SGD of SemiFL's authors' code, which clips gradients to 1."""
  sgd = build_nesterov_sgd(learning_rate, 0.9, weight_decay=5e-4)
  return clip_gradients(sgd, 1.0)


def build_server_adam(
  server_learning_rate: float = 0.01,
) -> tff.learning.optimizers.Optimizer:
  """Builds the server's Adam of FedAdam, with TFF's Adam.

  Reddi et al., Adaptive Federated Optimization (arXiv 2003.00295), Algorithm 2,
  with the paper's values for all its tasks: beta_1 = 0.9, beta_2 = 0.99 and
  adaptivity tau = 1e-3. Its m and v are not corrected for their start, TFF's
  are: there the first steps are shorter.

  Args:
    server_learning_rate: eta > 0. The paper tunes it for each task; a step
      moves each weight by about eta where its changes are well above tau.

  Returns:
    A `tff.learning.optimizers.Optimizer` for the mean of the model deltas.

  Raises:
    ValueError: If it is out of range.
  """
  checks.numbers_at_least(
    0, above=True, server_learning_rate=server_learning_rate
  )
  return tff.learning.optimizers.build_adam(
    server_learning_rate, beta_1=0.9, beta_2=0.99, epsilon=1e-3
  )


def build_server_sgd(
  server_learning_rate: float = 1.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds the server's SGD, whose rate multiplies the mean model delta.

  Args:
    server_learning_rate: Step size > 0; 1 adds the mean model delta as it is.

  Returns:
    A `tff.learning.optimizers.Optimizer` for the mean of the model deltas.

  Raises:
    ValueError: If it is out of range.
  """
  checks.numbers_at_least(
    0, above=True, server_learning_rate=server_learning_rate
  )
  return tff.learning.optimizers.build_sgdm(server_learning_rate)


class _Wrapper(tff.learning.optimizers.Optimizer):
  """An optimizer with the state and the hyperparameters of another one."""

  def __init__(self, optimizer):
    self._optimizer = optimizer

  def initialize(self, specs):
    return self._optimizer.initialize(specs)

  def get_hparams(self, state):
    return self._optimizer.get_hparams(state)

  def set_hparams(self, state, hparams):
    return self._optimizer.set_hparams(state, hparams)


class _WithOtherGradients(_Wrapper):
  """An optimizer that sees a function of weights and gradients as gradients."""

  def __init__(self, optimizer, change):
    super().__init__(optimizer)
    self._change = change

  def next(self, state, weights, gradients):
    gradients = tff.learning.optimizers.handle_indexed_slices_gradients(
      gradients
    )
    return self._optimizer.next(
      state, weights, self._change(weights, gradients)
    )


def clip_gradients(
  optimizer: tff.learning.optimizers.Optimizer, max_norm: float
) -> tff.learning.optimizers.Optimizer:
  """Returns the optimizer with gradients clipped by their global norm.

  ```
  g <- g min(1, max_norm / ||g||)
  ```

  with the Euclidean norm of all weights' gradients together, before whatever
  the optimizer adds to them, such as weight decay.

  Args:
    optimizer: The optimizer, whose state and hyperparameters remain its own.
    max_norm: A positive number.

  Returns:
    A `tff.learning.optimizers.Optimizer`.

  Raises:
    ValueError: If `max_norm` is not positive and finite.
  """
  checks.numbers_at_least(0, above=True, max_norm=max_norm)

  def clipped(weights, gradients):
    del weights
    values, _ = tf.clip_by_global_norm(tf.nest.flatten(gradients), max_norm)
    return tf.nest.pack_sequence_as(gradients, values)

  return _WithOtherGradients(optimizer, clipped)


def add_weight_decay(
  optimizer: tff.learning.optimizers.Optimizer, weight_decay: float
) -> tff.learning.optimizers.Optimizer:
  """Returns the optimizer of a loss with an L2 penalty on every weight.

  ```
  g <- g + weight_decay * w
  ```

  before the optimizer sees the gradient, as PyTorch's Adam does it;
  `tff.learning.optimizers.build_adamw` decouples the decay.
  """
  checks.numbers_at_least(0, above=True, weight_decay=weight_decay)

  def decayed(weight, gradient):
    if gradient is None:
      return None
    return gradient + tf.cast(weight_decay, weight.dtype) * weight

  return _WithOtherGradients(
    optimizer, functools.partial(tf.nest.map_structure, decayed)
  )


class _Resting(_Wrapper):
  """An optimizer of weights that rest where they get no gradient."""

  def next(self, state, weights, gradients):
    new_state, new_weights = self._optimizer.next(state, weights, gradients)
    moves = tf.nest.map_structure(
      lambda gradient: (
        False if gradient is None else tf.reduce_any(tf.not_equal(gradient, 0))
      ),
      gradients,
    )

    def unless_idle(new, old):
      return tf.nest.map_structure(tf.where, moves, new, old)

    for key, old in state.items():
      # Whatever has one entry per weight: a velocity, an accumulator.
      if tf.nest.is_nested(old):
        new_state[key] = unless_idle(new_state[key], old)
    return new_state, unless_idle(new_weights, weights)


def rest_without_gradient(
  optimizer: tff.learning.optimizers.Optimizer,
) -> tff.learning.optimizers.Optimizer:
  """Returns the optimizer with weights that rest where they get no gradient.

  A weight tensor whose gradient is 0 everywhere stays as it is in that step,
  and so do its velocity and other accumulators: momentum does not carry it on,
  decay does not shrink it. Counters of steps go on. The optimizer's state must
  be a dictionary, with a structure like the weights for each accumulator, as of
  `build_nesterov_sgd` and of TFF's SGD and Adam.
  """
  return _Resting(optimizer)


def cosine(
  total_steps: int,
  periodic_coefficient: float = 7 / 16,
  warmup_steps: int = 0,
  floor: float = 1e-4,
  scale: float = 1.0,
) -> Schedule:
  """Returns the cosine schedule of the grouping paper, with linear warm-up.

  Equation 11 of Zhang et al., "Improving Semi-supervised Federated Learning by
  Reducing the Gradient Diversity of Models", appendix A.3. With
  `t = step / scale` the factor is

  ```
  t / warmup_steps                                      while t < warmup_steps
  max(cos(pi * c * (t - warmup_steps) / (total_steps - warmup_steps)), floor)
  ```

  The authors' EMNIST runs take `c = 7/16` over 100 epochs of 1024 steps: a base
  rate of 0.03 ends at 0.00585. Their CIFAR-10 runs take c = 2.286 and divide by
  1024 epochs, not by the E = 300 that Equation 11 names. With E taken literally
  the rate falls to its floor near epoch 69 and rises again later; their SVHN
  runs, with E = 40, do so between epochs 13 and 28.

  Args:
    total_steps: Local steps of the whole training, E M / B in the paper.
    periodic_coefficient: `c`, half the number of periods in `total_steps`.
    warmup_steps: Steps of the warm-up, e M / B in the paper.
    floor: The smallest factor after the warm-up, epsilon in the paper.
    scale: Stretches the clock: with 2 everything takes twice as many steps.

  Returns:
    A function from a scalar integer step to a float32 factor.

  Raises:
    ValueError: If an argument is out of range.
  """
  if not 0 <= warmup_steps < total_steps:
    raise ValueError(
      f'warmup_steps is {warmup_steps} and total_steps {total_steps}: give '
      '0 <= warmup_steps < total_steps.'
    )
  checks.fractions(floor=floor)
  checks.numbers_at_least(0, above=True, scale=scale)
  speed = math.pi * periodic_coefficient / (total_steps - warmup_steps)

  def schedule(step):
    time = tf.cast(step, tf.float32) / scale
    decayed = tf.maximum(tf.cos(speed * (time - warmup_steps)), floor)
    if warmup_steps == 0:
      return decayed
    return tf.where(time < warmup_steps, time / warmup_steps, decayed)

  return schedule


def exponential(decay: float) -> RoundSchedule:
  """Returns the schedule that multiplies the rate by `decay` after each round.

  Args:
    decay: In (0, 1].

  Raises:
    ValueError: If it is out of range.
  """
  if not 0 < decay <= 1:
    raise ValueError(f'decay is {decay}: give a number above 0, at most 1.')
  return RoundSchedule(
    lambda round_num: tf.pow(
      tf.constant(decay, tf.float32), tf.cast(round_num, tf.float32)
    )
  )
