"""The mean of clients' changes, against numpy."""

import numpy as np
import tensorflow as tf

from tff_ssl.templates import client_task, memories


def _update(change, weight):
  return client_task.LocalUpdate(
    delta=[],
    weight=tf.constant(weight),
    metrics={},
    invalid=tf.constant(False),
    shared_change=[tf.constant(change)],
  )


def _after(state, memory, clients):
  kept = [
    memory.leave(None, _update(change, weight), tf.constant(counts))
    for change, weight, counts in clients
  ]
  sums = tf.nest.map_structure(
    lambda *leaves: tf.add_n(leaves), *[k.sums for k in kept]
  )
  return memory.merge(state, sums)


def test_the_weighted_mean_of_those_that_count_is_added():
  memory = memories.SharedMean(
    lambda: [tf.constant([1.0, 1.0])],
    lambda state, mean, count: [state[0] + count * mean[0]],
  )
  clients = [  # Change, weight, whether it counts.
    ([1.0, 2.0], 1.0, True),
    ([4.0, 8.0], 3.0, True),
    ([np.nan, 0.0], 5.0, False),
    ([9.0, 9.0], 0.0, True),
  ]
  state = _after(memory.initial(), memory, clients)
  mean = (np.array([1, 2]) + 3 * np.array([4, 8])) / 4
  np.testing.assert_allclose(state['shared'][0], 1 + 2 * mean)
  np.testing.assert_array_equal(
    memory.send(state)['shared'][0], state['shared'][0]
  )


def test_a_state_that_would_not_be_finite_stays_as_it_was():
  memory = memories.SharedMean(
    lambda: [tf.constant([1.0, 1.0])],
    lambda state, mean, count: [state[0] / (mean[0] - 1)],
  )
  state = _after(memory.initial(), memory, [([1.0, 2.0], 1.0, True)])
  np.testing.assert_array_equal(state['shared'][0], [1, 1])
