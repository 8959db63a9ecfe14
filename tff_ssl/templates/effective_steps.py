"""How many steps of plain SGD a client's local training amounts to.

Wang et al. (arXiv 2007.07481), Section 3, write the change of a client's model
as `x_i - x = -eta sum_k a_k g_k`, with learning rate eta and gradients g_k. For
SGD without and with momentum rho, and with a proximal term mu whose
alpha = eta mu, the norm of a after tau steps is

```
tau
[tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho)
[1 - (1 - alpha)^tau] / alpha
```

Take a single weight whose gradient is 1 in every step, and learning rate 1. The
distance that the optimizer carries this weight is the norm of a, for all of
these cases and their combinations. So the optimizer itself is asked, and there
is no formula for each kind.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols
from tff_ssl.templates import local_training

_RATE = 'learning_rate'
# Set to 0 here: its pull is a part of the gradients, as any regularizer's is.
_DECAY = 'weight_decay'
_SCALAR = tf.TensorSpec([], tf.float32)
# Far beyond the norm from which anybody clips gradients.
_LARGE = 1e6


def check_optimizer(
  optimizer: tff.learning.optimizers.Optimizer, purpose: str
) -> None:
  """Raises `ValueError` unless the number follows from an optimizer.

  Its steps must be in proportion to the gradients and a hyperparameter
  `learning_rate`. The purpose says in the message what wants the number.
  """
  hparams = optimizer.get_hparams(optimizer.initialize([_SCALAR]))
  linear = _RATE in hparams and np.allclose(
    _LARGE * _distance(optimizer, hparams, 1.0),
    _distance(optimizer, hparams, _LARGE),
    rtol=1e-4,
  )
  if not linear:
    raise ValueError(
      f'client_optimizer, with the hyperparameters {list(hparams)}, does not '
      'step in proportion to a learning_rate and the gradients, so that its '
      f'momentum cannot be read, which {purpose} needs: choose SGD '
      'without clipping, such as tff_ssl.build_nesterov_sgd(0.03).'
    )


def effective_steps(
  plan: local_training.TrainingPlan,
  num_steps: tf.Tensor,
  round_num: tf.Tensor,
  hparams: protocols.Hparams,
  proximal_strength: float = 0.0,
) -> tf.Tensor:
  """Returns the norm of a, `float32` scalar; 0 where no step was taken.

  The schedule of the client's plan multiplies the steps, of which there are tau
  (`num_steps`); `proximal_strength` is mu.
  """
  optimizer = plan.optimizer
  pull = proximal_strength * hparams[_RATE]

  def body(step, weight, state):
    state = plan.at_step(state, tf.constant(1.0), round_num, step)
    state, (weight,) = optimizer.next(state, [weight], [1 + pull * weight])
    return step + 1, weight, state

  _, weight, _ = tf.while_loop(
    lambda step, *_: step < num_steps,
    body,
    (tf.constant(0), tf.constant(0.0), _start(optimizer, hparams)),
  )
  return -weight


def _distance(optimizer, hparams, gradient, num_steps=3):
  """Returns how far a weight is carried, as a number."""
  state, weight = _start(optimizer, hparams), tf.constant(0.0)
  for _ in range(num_steps):
    state, (weight,) = optimizer.next(state, [weight], [tf.constant(gradient)])
  return weight.numpy()


def _start(optimizer, hparams):
  """Returns the state of a fresh optimizer of one weight, at rate 1."""
  hparams = collections.OrderedDict(hparams)
  hparams[_RATE] = tf.constant(1.0)
  if _DECAY in hparams:
    hparams[_DECAY] = tf.constant(0.0)
  state = optimizer.set_hparams(optimizer.initialize([_SCALAR]), hparams)
  return tf.nest.map_structure(tf.convert_to_tensor, state)
