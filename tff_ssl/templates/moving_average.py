"""An exponential moving average of the global model, over rounds.

Averaging the weights of a model along its training takes the noise of its last
steps out of it (Tarvainen and Valpola, Mean teachers are better role models,
arXiv 1703.01780; FixMatch evaluates such an average, arXiv 2001.07685). Here w
is the model after a round, and n the rounds before it:

```math
v <- d v + (1 - d) w,   d = min(decay, (1 + n) / (10 + n))
```

The second term is that of `tf.train.ExponentialMovingAverage(num_updates=n)`:
early rounds, whose models are poor, fade fast. With decay 0.9 the average spans
about ten rounds.

`keep_in_state` keeps it in the finalizer's state, for any process. With
`keep_in_last_row` it is one more row of the stack of models that a process has
as its global weights, so that clients receive it, too.
"""

import collections
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat, protocols
from tff_ssl.templates import finalizers

# Where the state of `keep_in_state` holds the average.
AVERAGE = 'average'


def models(weights: protocols.Structure) -> protocols.Structure:
  """Returns the stack `[S + 1, ...]` without the average, its last row."""
  return tf.nest.map_structure(lambda leaf: leaf[:-1], weights)


def average(weights: protocols.Structure) -> protocols.Structure:
  """Returns the average, the last row of the stack `[S + 1, ...]`."""
  return tf.nest.map_structure(lambda leaf: leaf[-1], weights)


def decay_at(decay: float, round_num: tf.Tensor) -> tf.Tensor:
  """Returns d above, `float32`."""
  n = tf.cast(round_num, tf.float32)
  return tf.minimum(tf.constant(decay, tf.float32), (1.0 + n) / (10.0 + n))


def _moved(decay, round_num, old, new):
  """Returns the average after a round."""
  decay_now = decay_at(decay, round_num)

  def move(before, after):
    if not after.dtype.is_floating:
      return after
    share = tf.cast(decay_now, before.dtype)
    return share * before + (1 - share) * after

  return tf.nest.map_structure(move, old, new)


def keep_in_state(
  finalizer: tff.learning.templates.FinalizerProcess,
  decay: float,
  *,
  initial: compat.Computation,
  model_of: Callable[[protocols.Structure], protocols.Structure],
) -> tff.learning.templates.FinalizerProcess:
  """Keeps an average of the model in the state of a finalizer.

  Args:
    finalizer: Makes new global weights of the present ones and the aggregate.
    decay: As of the module.
    initial: `( -> W)`, the initial global weights.
    model_of: TensorFlow function from global weights to w.
  """

  def initial_state():
    return collections.OrderedDict(
      [('round', tf.constant(0)), (AVERAGE, model_of(initial()))]
    )

  def after(kept, weights, new):
    del weights
    moved = _moved(decay, kept['round'], kept[AVERAGE], model_of(new))
    kept = [('round', kept['round'] + 1), (AVERAGE, moved)]
    return collections.OrderedDict(kept), new

  return finalizers.wrap_finalizer(finalizer, initial_state, after=after)


def keep_in_last_row(
  finalizer: tff.learning.templates.FinalizerProcess,
  decay: float,
  *,
  weights_type: compat.Type,
  model_of: Callable[[protocols.Structure], protocols.Structure],
) -> tff.learning.templates.FinalizerProcess:
  """Keeps an average of the models that a finalizer makes as one more row.

  Args:
    finalizer: Makes new models, structure of `[S, ...]`, of the present ones
      and the aggregate.
    decay: As of the module.
    weights_type: Unplaced type of the weights, `[S + 1, ...]`.
    model_of: TensorFlow function from the models `[S, ...]` to w.
  """

  def initial_state():
    return collections.OrderedDict(round=tf.constant(0))

  def before(kept, weights, aggregate):
    return kept, models(weights), aggregate

  def after(kept, weights, new):
    moved = _moved(decay, kept['round'], average(weights), model_of(new))
    weights = tf.nest.map_structure(
      lambda rows, last: tf.concat([rows, last[tf.newaxis]], axis=0), new, moved
    )
    return collections.OrderedDict(round=kept['round'] + 1), weights

  return finalizers.wrap_finalizer(
    finalizer,
    initial_state,
    before=before,
    after=after,
    weights_type=weights_type,
  )
