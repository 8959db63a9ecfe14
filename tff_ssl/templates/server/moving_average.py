"""An exponential moving average of the global model, over rounds.

Averaging the weights of a model along its training takes the noise of its last
steps out of it (Tarvainen and Valpola, Mean teachers are better role models,
arXiv 1703.01780; FixMatch evaluates such an average, arXiv 2001.07685). Here w
is the model after a round, and n the rounds before it:

```
v <- d v + (1 - d) w,   d = min(decay, (1 + n) / (10 + n))
```

The second term is that of `tf.train.ExponentialMovingAverage(num_updates=n)`:
early rounds, whose models are poor, fade fast. With decay 0.9 the average spans
about ten rounds.

`beside` keeps it in the finalizer's state, for any process. With `following` it
is one more row, the last, of the stack of models that a process has as its
global weights, so that clients receive it, too.
"""

import collections
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import protocols
from tff_ssl.templates.server import finalizers

# Where the state of `beside` holds the average.
AVERAGE = 'average'


def models(weights: protocols.Structure) -> protocols.Structure:
  """Returns the stack without the average, its last row.

  Args:
    weights: Structure of `[S + 1, ...]`.
  """
  return tf.nest.map_structure(lambda leaf: leaf[:-1], weights)


def average(weights: protocols.Structure) -> protocols.Structure:
  """Returns the average, the last row of the stack.

  Args:
    weights: Structure of `[S + 1, ...]`.
  """
  return tf.nest.map_structure(lambda leaf: leaf[-1], weights)


def decay_at(decay: float, round_num: tf.Tensor) -> tf.Tensor:
  """Returns d above, `float32`.

  Args:
    decay: In [0, 1).
    round_num: n, rounds before this one, an integer scalar.
  """
  n = tf.cast(round_num, tf.float32)
  return tf.minimum(tf.constant(decay, tf.float32), (1.0 + n) / (10.0 + n))


def _moved(
  decay: float,
  round_num: tf.Tensor,
  old: protocols.Structure,
  new: protocols.Structure,
) -> protocols.Structure:
  """Returns the average after a round."""
  decay_now = decay_at(decay, round_num)

  def move(before, after):
    if not after.dtype.is_floating:
      return after
    share = tf.cast(decay_now, before.dtype)
    return share * before + (1 - share) * after

  return tf.nest.map_structure(move, old, new)


@tff.tensorflow.computation(np.int32)
def _add_one(round_num):
  return round_num + 1


def beside(
  finalizer: tff.learning.templates.FinalizerProcess,
  decay: float,
  *,
  initial: tff.Computation,
  model_of: Callable[[protocols.Structure], protocols.Structure],
) -> tff.learning.templates.FinalizerProcess:
  """Keeps an average of the model in the state of a finalizer.

  Args:
    finalizer: Makes new global weights of the present ones and the aggregate.
    decay: The setting above, in [0, 1).
    initial: `( -> W)`, the initial global weights.
    model_of: TensorFlow function from global weights to w.

  Returns:
    A finalizer over the same weights, of the same class, with the same
    hyperparameters and measurements. Its state has the field `AVERAGE`.
  """
  inner_type, weights_type, aggregate_type = finalizers.types_of(finalizer)

  @tff.tensorflow.computation(weights_type)
  def take_model(weights):
    return model_of(weights)

  average_type = take_model.type_signature.result

  @tff.tensorflow.computation(average_type, weights_type, np.int32)
  def move(old, weights, round_num):
    return _moved(decay, round_num, old, model_of(weights))

  @tff.federated_computation
  def initialize():
    weights = tff.federated_eval(initial, tff.SERVER)
    return tff.federated_zip(
      collections.OrderedDict(
        [
          (finalizers.INNER, finalizer.initialize()),
          ('round', tff.federated_value(0, tff.SERVER)),
          (AVERAGE, tff.federated_map(take_model, weights)),
        ]
      )
    )

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(aggregate_type, tff.SERVER),
  )
  def next_fn(state, weights, aggregate):
    output = finalizer.next(state[finalizers.INNER], weights, aggregate)
    moved = tff.federated_map(
      move, (state[AVERAGE], output.result, state['round'])
    )
    return tff.templates.MeasuredProcessOutput(
      tff.federated_zip(
        collections.OrderedDict(
          [
            (finalizers.INNER, output.state),
            ('round', tff.federated_map(_add_one, state['round'])),
            (AVERAGE, moved),
          ]
        )
      ),
      output.result,
      output.measurements,
    )

  return finalizers.around(finalizer, initialize, next_fn)


def following(
  finalizer: tff.learning.templates.FinalizerProcess,
  decay: float,
  *,
  weights_type: tff.Type,
  model_of: Callable[[protocols.Structure], protocols.Structure],
) -> tff.learning.templates.FinalizerProcess:
  """Lets an average follow the models that a finalizer makes.

  Args:
    finalizer: Makes new models, structure of `[S, ...]`, of the present ones
      and the aggregate.
    decay: The setting above, in [0, 1).
    weights_type: Unplaced type of the weights, `[S + 1, ...]`.
    model_of: TensorFlow function from the models `[S, ...]` to w.

  Returns:
    A finalizer over weights `[S + 1, ...]`, of the same class, with the same
    hyperparameters and measurements. Its state counts rounds.
  """
  inner_type, models_type, aggregate_type = finalizers.types_of(finalizer)
  state_type = tff.types.to_type(
    collections.OrderedDict(inner=inner_type, round=np.int32)
  )

  @tff.tensorflow.computation(weights_type)
  def take_models(weights):
    return models(weights)

  @tff.tensorflow.computation(weights_type, models_type, np.int32)
  def append(weights, new_models, round_num):
    moved = _moved(decay, round_num, average(weights), model_of(new_models))
    return tf.nest.map_structure(
      lambda rows, last: tf.concat([rows, last[tf.newaxis]], axis=0),
      new_models,
      moved,
    )

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        inner=finalizer.initialize(), round=tff.federated_value(0, tff.SERVER)
      )
    )

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(aggregate_type, tff.SERVER),
  )
  def next_fn(state, weights, aggregate):
    output = finalizer.next(
      state['inner'], tff.federated_map(take_models, weights), aggregate
    )
    return tff.templates.MeasuredProcessOutput(
      tff.federated_zip(
        collections.OrderedDict(
          inner=output.state,
          round=tff.federated_map(_add_one, state['round']),
        )
      ),
      tff.federated_map(append, (weights, output.result, state['round'])),
      output.measurements,
    )

  return finalizers.around(finalizer, initialize, next_fn)
