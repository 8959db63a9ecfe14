"""Slots' states from round to round, and what is refused."""

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.templates import client_data, client_task, memories

_ELEMENTS = client_data.image_element_spec((4,), dtype=tf.float32)


def _task(slot):
  zero = tf.constant(0)
  return client_task.ClientTask(
    weights=[],
    round=zero,
    seed=zero,
    hparams={},
    examples={},
    client=zero,
    group=zero,
    slot=tf.constant(slot),
  )


def _update(slot_state):
  return client_task.LocalUpdate(
    delta=[],
    weight=tf.constant(1.0),
    metrics={},
    invalid=tf.constant(False),
    slot_state=slot_state,
  )


def test_a_row_comes_back_to_the_slot_of_the_next_round():
  memory = memories.SlotMemory(3, lambda: [1.0, 2])
  state = memory.initial()
  kept = [
    memory.leave(
      _task(slot),
      _update([tf.constant(value), tf.constant(7)]),
      tf.constant(counts),
    )
    for slot, value, counts in ((2, 5.0, True), (0, np.nan, False))
  ]
  sums = tf.nest.map_structure(
    lambda *leaves: tf.add_n(leaves), *[k.sums for k in kept]
  )
  state = memory.merge(state, sums)
  found = [
    memory.read(_task(slot), memory.send(state))[0].slot_state
    for slot in range(3)
  ]
  assert [[float(x), int(n)] for x, n in found] == [[1, 2], [1, 2], [5, 7]]


@pytest.mark.parametrize('slot, missing', [(-1, True), (1, False), (3, True)])
def test_a_slot_may_not_exist(slot, missing):
  memory = memories.SlotMemory(3, lambda: [0.0])
  _, is_missing = memory.read(_task(slot), memory.initial())
  assert bool(is_missing) == missing
