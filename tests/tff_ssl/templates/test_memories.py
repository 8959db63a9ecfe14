"""What a server keeps of clients, against numpy, and what cannot be kept."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import optimizers
from tff_ssl.templates import client_data, client_task, memories

_ELEMENTS = client_data.image_element_spec((4,), dtype=tf.float32)
_DATA = client_data.ClientDataSpec(_ELEMENTS, in_context=True)
_IN_SLOTS = client_data.ClientDataSpec(_ELEMENTS, in_context=True, num_slots=2)
_CLIENTS = [  # Value, weight, whether it counts.
  ([1.0, 2.0], 1.0, True),
  ([4.0, 8.0], 3.0, True),
  ([np.nan, 0.0], 5.0, False),
  ([9.0, 9.0], 0.0, True),
]
_MEAN = (np.array([1, 2]) + 3 * np.array([4, 8])) / 4


def _task(slot=0):
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


def _after(memory, clients, field):
  """Returns the state after a round of clients, who leave a field each.

  Each is (value, weight, whether it counts), and maybe its slot.
  """
  kept = []
  for value, weight, counts, *slot in clients:
    result = client_task.TrainingResult([], (), {})._replace(
      **{field: tf.nest.map_structure(tf.constant, value)}
    )
    update = client_task.LocalUpdate([], tf.constant(weight), result)
    left, _ = memory.leave(_task(*slot), update, tf.constant(counts))
    kept.append(left)
  sums = tf.nest.map_structure(lambda *leaves: tf.add_n(leaves), *kept)
  return memory.merge(memory.initial(), sums)


class TestSharedMean:
  def _after(self, clients, merge):
    memory = memories.SharedMean(lambda: [tf.constant([1.0, 1.0])], merge)
    clients = [([tf.constant(value)], *rest) for value, *rest in clients]
    state = _after(memory, clients, 'shared_change')
    return memory.send(state)[0]

  def test_the_weighted_mean_of_those_that_count_is_added(self):
    merge = lambda state, mean, count: [state[0] + count * mean[0]]
    np.testing.assert_allclose(self._after(_CLIENTS, merge), 1 + 2 * _MEAN)

  def test_a_state_that_would_not_be_finite_stays_as_it_was(self):
    merge = lambda state, mean, count: [state[0] / (mean[0] - 1)]
    np.testing.assert_array_equal(self._after(_CLIENTS[:1], merge), [1, 1])


class TestMeanState:
  def _after(self, clients):
    memory = memories.MeanState(lambda: [tf.constant([5.0, 5.0])])
    clients = [([tf.constant(value)], *rest) for value, *rest in clients]
    state = _after(memory, clients, 'optimizer_state')
    # All clients begin with it.
    task, is_missing = memory.read(_task(), memory.send(state))
    assert not is_missing
    return task.optimizer_state[0]

  def test_it_is_the_weighted_mean_of_those_that_count(self):
    np.testing.assert_allclose(self._after(_CLIENTS), _MEAN)

  @pytest.mark.parametrize(
    'client',
    [
      ([1.0, 2.0], 0.0, True),
      ([1.0, 2.0], 1.0, False),
      ([np.inf, 2.0], 1.0, True),
    ],
  )
  def test_without_clients_or_a_finite_mean_it_stays(self, client):
    np.testing.assert_array_equal(self._after([client]), [5, 5])


class TestSlotMemory:
  def test_a_row_comes_back_to_the_slot_of_the_next_round(self):
    memory = memories.SlotMemory(3, lambda: [1.0, 2])
    state = _after(
      memory,
      [([5.0, 7], 1.0, True, 2), ([np.nan, 7], 1.0, False, 0)],
      'optimizer_state',
    )
    found = [
      memory.read(_task(slot), memory.send(state))[0].optimizer_state
      for slot in range(3)
    ]
    assert [[float(x), int(n)] for x, n in found] == [[1, 2], [1, 2], [5, 7]]

  @pytest.mark.parametrize('slot, missing', [(-1, True), (1, False), (3, True)])
  def test_a_slot_may_not_exist(self, slot, missing):
    memory = memories.SlotMemory(3, lambda: [0.0])
    _, is_missing = memory.read(_task(slot), memory.initial())
    assert bool(is_missing) == missing


def test_which_memory_keeps_momentum():
  state = optimizers.build_nesterov_sgd(0.1).initialize(
    [tf.TensorSpec([2], tf.float32)]
  )
  (memory,) = memories.client_momentum('mean', _DATA, lambda: state)
  assert isinstance(memory, memories.MeanState)
  assert memories.client_momentum('reset', _DATA, dict) == ()
  (memory,) = memories.client_momentum('slot', _IN_SLOTS, dict)
  assert (type(memory), memory.num_slots) == (memories.SlotMemory, 2)


@pytest.mark.parametrize(
  'client_momentum, state, error, message',
  [
    ('slot', {}, TypeError, r'num_slots=\(clients per round\)'),
    ('kept', {}, ValueError, "client_momentum .* 'kept'"),
    ('mean', {'step': 3}, TypeError, 'counts steps'),
  ],
)
def test_momentum_that_cannot_be_kept(client_momentum, state, error, message):
  def initial_state():
    return collections.OrderedDict(tf.nest.map_structure(tf.constant, state))

  with pytest.raises(error, match=message):
    memories.client_momentum(client_momentum, _DATA, initial_state)
