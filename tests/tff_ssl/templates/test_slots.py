"""Rows of a stack of slots: scattered by clients, and merged."""

import numpy as np
import tensorflow as tf

from tff_ssl.templates import slots


def test_summed_rows_replace_the_slots_of_those_who_count():
  """A slot that two clients claim stays as it was."""
  old = {'v': tf.constant([[1.0], [2.0], [3.0]]), 'n': tf.constant([7, 8, 9])}
  clients = [  # Slot, new state, whether it counts.
    (2, {'v': tf.constant([30.0]), 'n': tf.constant(90)}, True),
    (0, {'v': tf.constant([np.nan]), 'n': tf.constant(1)}, False),
    (5, {'v': tf.constant([50.0]), 'n': tf.constant(5)}, True),
    (1, {'v': tf.constant([20.0]), 'n': tf.constant(80)}, True),
    (1, {'v': tf.constant([21.0]), 'n': tf.constant(81)}, True),
  ]
  rows, taken = tf.nest.map_structure(
    lambda *leaves: tf.add_n(leaves),
    *[
      slots.scatter(state, tf.constant(slot), 3, tf.constant(counts))
      for slot, state, counts in clients
    ],
  )
  new = slots.merge(old, rows, taken)
  assert new['v'].numpy().tolist() == [[1.0], [2.0], [30.0]]
  assert new['n'].numpy().tolist() == [7, 8, 90]
