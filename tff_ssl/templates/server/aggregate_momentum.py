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
Moving statistics change as the clients' do, without momentum, by which a moving
variance could become negative.
"""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import faults, stacks
from tff_ssl.templates.server import finalizers


def preceding(
  finalizer: tff.learning.templates.FinalizerProcess, momentum: float
) -> tff.learning.templates.FinalizerProcess:
  """Gives a finalizer the clients' changes with momentum.

  A change that is not finite reaches the finalizer as it is, and leaves v as it
  was.

  Args:
    finalizer: Takes the aggregate `<mean=ModelWeights, weight=...>`, stacks of
      S rows.
    momentum: beta_g, in [0, 1).

  Returns:
    A finalizer of the same class, with the same hyperparameters and
    measurements, whose state holds v.
  """
  inner_type, weights_type, aggregate_type = finalizers.types_of(finalizer)

  @tff.tensorflow.computation
  def no_velocity():
    spec = tff.types.type_to_tf_tensor_specs(
      aggregate_type['mean']['trainable']
    )
    return tf.nest.map_structure(
      lambda leaf: tf.zeros(leaf.shape[1:], leaf.dtype), spec
    )

  velocity_type = no_velocity.type_signature.result
  state_type = tff.types.to_type(
    collections.OrderedDict(inner=inner_type, velocity=velocity_type)
  )

  @tff.tensorflow.computation(velocity_type, aggregate_type)
  def push(velocity, aggregate):
    mean = aggregate['mean']
    pushed = tf.nest.map_structure(
      lambda change, old: change + tf.cast(momentum, old.dtype) * old,
      mean.trainable,
      velocity,
    )
    velocity = faults.choose(
      faults.all_finite(pushed), stacks.mean(pushed), velocity
    )
    return velocity, collections.OrderedDict(
      mean=tff.learning.models.ModelWeights(pushed, mean.non_trainable),
      weight=aggregate['weight'],
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

  return finalizers.around(finalizer, initialize, next_fn)
