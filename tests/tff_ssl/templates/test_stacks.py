"""Stacks of structures against numpy."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.templates import stacks

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


def test_row():
  stacked = stacks.tile({'a': tf.constant([1.0, 2.0]), 'n': 3}, size=4)
  assert stacked['a'].shape == (4, 2)
  stacked['n'] = tf.range(4)
  assert [int(stacks.row(stacked, i)['n']) for i in range(4)] == [0, 1, 2, 3]


def test_missing_rows():
  missing = [bool(stacks.is_missing(tf.constant(i), 3)) for i in (-1, 0, 2, 3)]
  assert missing == [True, False, False, True]
