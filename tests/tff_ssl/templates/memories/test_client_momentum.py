"""The mean of clients' states, against numpy, and momentum that cannot be."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import optimizers
from tff_ssl.templates import client_data, client_task, memories

_ELEMENTS = client_data.image_element_spec((4,), dtype=tf.float32)
_DATA = client_data.ClientDataSpec(_ELEMENTS, in_context=True)


def _initial():
  return [tf.constant([5.0, 5.0])]


def _after(clients):
  """Returns the state after a round of (state, weight, counts)."""
  memory = memories.MeanState(_initial)
  kept = [
    memory.leave(
      None,
      client_task.LocalUpdate(
        delta=[],
        weight=tf.constant(weight),
        metrics={},
        invalid=tf.constant(False),
        slot_state=[tf.constant(state)],
      ),
      tf.constant(counts),
    )
    for state, weight, counts in clients
  ]
  sums = tf.nest.map_structure(
    lambda *leaves: tf.add_n(leaves), *[k.sums for k in kept]
  )
  return memory.merge(memory.initial(), sums)['momentum'][0]


def test_it_is_the_weighted_mean_of_those_that_count():
  mean = _after(
    [
      ([1.0, 2.0], 1.0, True),
      ([4.0, 8.0], 3.0, True),
      ([np.nan, 0.0], 5.0, False),
      ([9.0, 9.0], 0.0, True),
    ]
  )
  np.testing.assert_allclose(mean, [13 / 4, 26 / 4])


@pytest.mark.parametrize(
  'clients',
  [
    [([1.0, 2.0], 0.0, True)],
    [([1.0, 2.0], 1.0, False)],
    [([np.inf, 2.0], 1.0, True)],
  ],
)
def test_without_clients_or_a_finite_mean_it_stays(clients):
  np.testing.assert_array_equal(_after(clients), [5, 5])


def test_all_clients_begin_with_it():
  memory = memories.MeanState(_initial)
  task = client_task.ClientTask(*[None] * 8)
  task, is_missing = memory.read(task, memory.send(memory.initial()))
  np.testing.assert_array_equal(task.slot_state[0], [5, 5])
  assert not is_missing


def test_steps_cannot_be_averaged():
  def initial_state():
    return collections.OrderedDict(step=tf.constant(3))

  with pytest.raises(TypeError, match='counts steps'):
    memories.client_momentum('mean', _DATA, initial_state)


def test_which_memory_it_takes():
  state = optimizers.build_nesterov_sgd(0.1).initialize(
    [tf.TensorSpec([2], tf.float32)]
  )
  (memory,) = memories.client_momentum('mean', _DATA, lambda: state)
  assert isinstance(memory, memories.MeanState)
  assert memories.client_momentum('reset', _DATA, dict) == ()
  in_slots = client_data.ClientDataSpec(_ELEMENTS, in_context=True, num_slots=2)
  (memory,) = memories.client_momentum('slot', in_slots, dict)
  assert (type(memory), memory.num_slots) == (memories.SlotMemory, 2)


@pytest.mark.parametrize(
  'client_momentum, error, message',
  [
    ('slot', TypeError, r'num_slots=\(clients per round\)'),
    ('kept', ValueError, "client_momentum .* 'kept'"),
  ],
)
def test_momentum_that_cannot_be_kept(client_momentum, error, message):
  with pytest.raises(error, match=message):
    memories.client_momentum(client_momentum, _DATA, collections.OrderedDict)
