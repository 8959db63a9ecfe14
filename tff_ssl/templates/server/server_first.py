"""A server that trains alone in the first rounds, and averages after them."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import faults, stacks
from tff_ssl.templates.server import finalizers, server_training


def build(
  server: server_training.ServerTraining,
  first_rounds: int,
  *,
  weights_type: tff.Type,
  aggregate_type: tff.Type,
  seed: int,
) -> tff.learning.templates.FinalizerProcess:
  """Trains the server's model first, and then takes the clients' mean.

  A result that is not finite leaves the weights as they are, and counts in
  `update_non_finite`.

  Args:
    server: How the server trains, from the global weights; one replica.
    first_rounds: Rounds in which it does, and the clients' mean is not looked
      at.
    weights_type: Unplaced type of the `ModelWeights`.
    aggregate_type: Unplaced type of the mean delta, which is that of weights.
    seed: The run's seed.

  Returns:
    A `tff.learning.templates.FinalizerProcess` with the hyperparameters of the
    server's training, whose measurements are
    `<server=<loss, accuracy>, update_non_finite=int32>`; the first are NaN in
    rounds without a server that trains.
  """

  def update(state, weights, delta):
    def train():
      trained = server.run(
        weights,
        state['optimizer'],
        seed=state['seed'],
        round_num=state['round'],
      )
      return (
        server.first_replica(trained.weights),
        trained.optimizer_state,
        server_training.ratios(stacks.row(trained.metrics, 0)),
      )

    def average():
      none = collections.OrderedDict(
        (name, tf.constant(float('nan')))
        for name in server.training.metric_names
      )
      mean = tf.nest.map_structure(tf.add, weights, delta)
      return mean, state['optimizer'], none

    *new, metrics = tf.cond(state['round'] < first_rounds, train, average)
    finite = faults.all_finite(new)
    weights, optimizer_state = faults.choose(
      finite, new, [weights, state['optimizer']]
    )
    state = collections.OrderedDict(
      state, optimizer=optimizer_state, round=state['round'] + 1
    )
    return (
      state,
      weights,
      collections.OrderedDict(
        server=metrics, update_non_finite=tf.cast(~finite, tf.int32)
      ),
    )

  return finalizers.build_finalizer(
    lambda: server_training.initial_state(server, seed),
    update,
    weights_type=weights_type,
    aggregate_type=aggregate_type,
    optimizer=server,
  )
