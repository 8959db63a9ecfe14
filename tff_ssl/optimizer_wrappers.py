"""Optimizers that change what another one does with gradients."""

import math

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import optimizers


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


class _Clipped(_Wrapper):
  """See `clip_gradients`."""

  def __init__(self, optimizer, max_norm):
    super().__init__(optimizer)
    self._max_norm = max_norm

  def next(self, state, weights, gradients):
    gradients = tff.learning.optimizers.handle_indexed_slices_gradients(
      gradients
    )
    clipped, _ = tf.clip_by_global_norm(
      tf.nest.flatten(gradients), self._max_norm
    )
    return self._optimizer.next(
      state, weights, tf.nest.pack_sequence_as(gradients, clipped)
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
  if not 0 < max_norm < math.inf:
    raise ValueError(f'max_norm is {max_norm}: give a positive number.')
  return _Clipped(optimizer, max_norm)


class _Decayed(_Wrapper):
  """See `add_weight_decay`."""

  def __init__(self, optimizer, weight_decay):
    super().__init__(optimizer)
    self._weight_decay = weight_decay

  def next(self, state, weights, gradients):
    gradients = tff.learning.optimizers.handle_indexed_slices_gradients(
      gradients
    )
    decayed = tf.nest.map_structure(
      lambda weight, gradient: (
        None
        if gradient is None
        else gradient + tf.cast(self._weight_decay, weight.dtype) * weight
      ),
      weights,
      gradients,
    )
    return self._optimizer.next(state, weights, decayed)


def add_weight_decay(
  optimizer: tff.learning.optimizers.Optimizer, weight_decay: float
) -> tff.learning.optimizers.Optimizer:
  """Returns the optimizer of a loss with an L2 penalty on every weight.

  ```
  g <- g + weight_decay * w
  ```

  before the optimizer sees the gradient, as PyTorch's Adam does it;
  `tff.learning.optimizers.build_adamw` decouples the decay.

  Args:
    optimizer: The optimizer, whose state and hyperparameters remain its own.
    weight_decay: A positive number.

  Returns:
    A `tff.learning.optimizers.Optimizer`.

  Raises:
    ValueError: If `weight_decay` is not positive and finite.
  """
  if not 0 < weight_decay < math.inf:
    raise ValueError(f'weight_decay is {weight_decay}: give a positive number.')
  return _Decayed(optimizer, weight_decay)


class _Resting(_Wrapper):
  """See `rest_without_gradient`."""

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
  decay does not shrink it. Counters of steps go on.

  Args:
    optimizer: One whose state is a dictionary, with a structure like the
      weights for each accumulator, as of `build_nesterov_sgd` and of TFF's SGD
      and Adam.
  """
  return _Resting(optimizer)


def build_semifl_sgd(
  learning_rate: float = 0.03,
) -> tff.learning.optimizers.Optimizer:
  """Builds the SGD of SemiFL's authors' code, for clients and server.

  Args:
    learning_rate: By default theirs.

  Returns:
    `build_nesterov_sgd` with momentum 0.9 and coupled weight decay 5e-4, whose
    gradients are clipped to norm 1.
  """
  sgd = optimizers.build_nesterov_sgd(learning_rate, 0.9, weight_decay=5e-4)
  return clip_gradients(sgd, 1.0)
