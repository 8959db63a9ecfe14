"""Momentum of the clients' averaged change, for processes with groups.

SemiFL (Diao et al., arXiv 2106.01432) applies the mean of its clients' changes
with momentum. Clients begin each round with momentum 0 and take few steps, so
that a round's change is short; the server's momentum makes up for that. With
groups, D_i is the mean change of group i, and all groups get the same more:

```
v   <- beta_g v + 1/S sum_i D_i
D_i <- D_i + beta_g v_old
```

so that the mean of the groups' changes is v, as SemiFL's is with one group.
"""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import faults, stacks


def preceding(
  finalizer: tff.learning.templates.FinalizerProcess, momentum: float
) -> tff.learning.templates.FinalizerProcess:
  """Gives a finalizer the clients' changes with momentum.

  A change that is not finite reaches the finalizer as it is, and leaves v as it
  was.

  Args:
    finalizer: Takes the aggregate `<mean=structure of [S, ...], weight=...>`.
    momentum: beta_g, in [0, 1).

  Returns:
    A finalizer of the same class, with the same hyperparameters and
    measurements, whose state holds v.
  """
  inner_type, weights_type, aggregate_type = (
    part.member for _, part in _parameters(finalizer)
  )

  @tff.tensorflow.computation
  def no_velocity():
    spec = tff.types.type_to_tf_tensor_specs(aggregate_type['mean'])
    return tf.nest.map_structure(
      lambda leaf: tf.zeros(leaf.shape[1:], leaf.dtype), spec
    )

  velocity_type = no_velocity.type_signature.result
  state_type = tff.types.to_type(
    collections.OrderedDict(inner=inner_type, velocity=velocity_type)
  )

  @tff.tensorflow.computation(velocity_type, aggregate_type)
  def push(velocity, aggregate):
    pushed = tf.nest.map_structure(
      lambda change, old: change + tf.cast(momentum, old.dtype) * old,
      aggregate['mean'],
      velocity,
    )
    velocity = faults.choose(
      faults.all_finite(pushed), stacks.mean(pushed), velocity
    )
    return velocity, collections.OrderedDict(
      mean=pushed, weight=aggregate['weight']
    )

  @tff.federated_computation
  def initialize():
    return tff.federated_zip(
      collections.OrderedDict(
        inner=finalizer.initialize(),
        velocity=tff.federated_eval(no_velocity, tff.SERVER),
      )
    )

  @tff.federated_computation(
    tff.FederatedType(state_type, tff.SERVER),
    tff.FederatedType(weights_type, tff.SERVER),
    tff.FederatedType(aggregate_type, tff.SERVER),
  )
  def next_fn(state, weights, aggregate):
    velocity, pushed = tff.federated_map(push, (state['velocity'], aggregate))
    output = finalizer.next(state['inner'], weights, pushed)
    return tff.templates.MeasuredProcessOutput(
      tff.federated_zip(
        collections.OrderedDict(inner=output.state, velocity=velocity)
      ),
      output.result,
      output.measurements,
    )

  hparams_type = finalizer.get_hparams.type_signature.result

  @tff.tensorflow.computation(state_type)
  def get_hparams(state):
    return finalizer.get_hparams(state['inner'])

  @tff.tensorflow.computation(state_type, hparams_type)
  def set_hparams(state, hparams):
    state['inner'] = finalizer.set_hparams(state['inner'], hparams)
    return state

  return type(finalizer)(
    initialize,
    next_fn,
    get_hparams_fn=get_hparams,
    set_hparams_fn=set_hparams,
  )


def _parameters(finalizer):
  return tff.structure.iter_elements(finalizer.next.type_signature.parameter)
