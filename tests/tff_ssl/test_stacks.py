"""Stacks of structures against numpy."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import stacks

ModelWeights = tff.learning.models.ModelWeights


def test_tile_and_mean():
  weights = ModelWeights(
    [tf.constant([[1.0, 2.0]]), tf.constant(3.0)], [tf.constant([4.0])]
  )
  stack = stacks.tile(weights, 3)
  np.testing.assert_array_equal(stack.trainable[0], [[[1, 2]]] * 3)
  np.testing.assert_array_equal(stack.trainable[1], [3, 3, 3])
  np.testing.assert_array_equal(stack.non_trainable[0], [[4]] * 3)
  rows = ModelWeights([tf.constant([[1.0, 5.0], [2.0, 7.0]])], [])
  mean = stacks.mean(rows)
  np.testing.assert_array_equal(mean.trainable[0], [1.5, 6])


def test_rows_and_missing_ones():
  stacked = stacks.tile({'a': tf.constant([1.0, 2.0]), 'n': 3}, size=4)
  assert stacked['a'].shape == (4, 2)
  stacked['n'] = tf.range(4)
  assert [int(stacks.row(stacked, i)['n']) for i in range(4)] == [0, 1, 2, 3]
  missing = [bool(stacks.is_missing(tf.constant(i), 3)) for i in (-1, 0, 2, 3)]
  assert missing == [True, False, False, True]


def test_summed_rows_replace_those_of_clients_that_count():
  """A row that two clients claim stays as it was."""
  old = {'v': tf.constant([[1.0], [2.0], [3.0]]), 'n': tf.constant([7, 8, 9])}
  clients = [  # Row, new state, whether it counts.
    (2, {'v': tf.constant([30.0]), 'n': tf.constant(90)}, True),
    (0, {'v': tf.constant([np.nan]), 'n': tf.constant(1)}, False),
    (5, {'v': tf.constant([50.0]), 'n': tf.constant(5)}, True),
    (1, {'v': tf.constant([20.0]), 'n': tf.constant(80)}, True),
    (1, {'v': tf.constant([21.0]), 'n': tf.constant(81)}, True),
  ]
  rows, taken = tf.nest.map_structure(
    lambda *leaves: tf.add_n(leaves),
    *[
      stacks.scatter(state, tf.constant(slot), 3, tf.constant(counts))
      for slot, state, counts in clients
    ],
  )
  new = stacks.merge(old, rows, taken)
  assert new['v'].numpy().tolist() == [[1.0], [2.0], [30.0]]
  assert new['n'].numpy().tolist() == [7, 8, 90]
