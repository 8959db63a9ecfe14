"""Who is chosen for a helper, when, and of whom."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import neighbors

from tff_ssl.templates import client_task, faults
from tff_ssl.templates.helper_clients import helper_table

_WIDTH = 3


def table_of(num_clients, num_helpers=1, interval=1, **more):
  return helper_table.HelperTable(
    num_clients, _WIDTH, num_helpers=num_helpers, interval=interval, **more
  )


def outputs_of(client, round_num=0):
  rng = np.random.default_rng([client, round_num])
  return rng.dirichlet(np.ones(_WIDTH)).astype(np.float32)


def after(table, *rounds, counts=True):
  """Returns the state after rounds, given as lists of participants."""
  state = table.initial()
  for round_num, participants in enumerate(rounds):
    sent = [
      faults.zero_unless(
        tf.constant(counts),
        table.scatter(
          tf.constant(client), tf.constant(outputs_of(client, round_num))
        ),
      )
      for client in participants
    ]
    sums = tf.nest.map_structure(lambda *v: tf.add_n(v), *sent)
    state = table.merge(state, sums)
  return state


def helpers(table, state, client):
  chosen = table.helpers_of(state['chosen'], tf.constant(client))
  return chosen.numpy().tolist()


def test_helpers_are_the_nearest_others():
  table = table_of(30, num_helpers=4)
  known = [*range(0, 30, 2), 1, 7]
  state = after(table, known)
  points = np.stack([outputs_of(client) for client in known])
  search = neighbors.NearestNeighbors(n_neighbors=5).fit(points)
  order = search.kneighbors(points, return_distance=False)
  for position, client in enumerate(known):
    nearest = [known[i] for i in order[position] if i != position]
    assert helpers(table, state, client) == nearest
  # Who has not taken part has none, and helps nobody.
  for client in set(range(30)) - set(known):
    assert helpers(table, state, client) == [-1] * 4


def test_the_newest_outputs_count():
  table = table_of(9)
  state = after(table, [0, 1, 2, 3, 4], [2, 3])
  now = {c: outputs_of(c, 1 if c in (2, 3) else 0) for c in range(5)}
  for client in range(5):
    distances = {
      other: np.linalg.norm(now[client] - now[other])
      for other in now
      if other != client
    }
    nearest = min(distances, key=distances.get)
    assert helpers(table, state, client) == [nearest]


def test_few_known_clients():
  table = table_of(9, num_helpers=2)
  assert helpers(table, table.initial(), 4) == [-1, -1]
  assert helpers(table, after(table, [4]), 4) == [-1, -1]
  state = after(table, [4, 5])
  assert helpers(table, state, 4) == [5, -1]
  assert helpers(table, state, 5) == [4, -1]


def test_helpers_are_chosen_before_every_rth_round():
  table = table_of(9, num_helpers=2, interval=4)
  everyone = list(range(9))
  rounds = [[0, 1], [1, 2], [2, 3], *[everyone] * 4]
  choices = [
    after(table, *rounds[:done])['chosen']['helpers'].numpy() if done else None
    for done in range(8)
  ]
  # After 3 rounds, before the fourth, those who are known by then.
  assert all((choices[done] == -1).all() for done in (1, 2))
  assert set(choices[3][4:].ravel()) == {-1}
  assert set(choices[3][:4].ravel()) <= {0, 1, 2, 3}
  for done in (4, 5, 6):
    np.testing.assert_array_equal(choices[done], choices[3])
  assert (choices[7] >= 0).all()


def test_who_is_left_out_and_who_does_not_train_is_not_known():
  table = table_of(5)
  state = after(table, [0, 1, 2], counts=False)
  assert helpers(table, state, 0) == [-1]
  late = table_of(5, first_round=1)
  assert helpers(late, after(late, [0, 1, 2]), 0) == [-1]
  assert helpers(late, after(late, [0, 1, 2], [0, 1]), 0) == [1]


def test_fingerprints_share_rows():
  table = table_of(5, by_index=False)
  first, second, third = 1003, 2**31 - 2, 1_000_008  # Rows 3, 1, 3.
  state = after(table, [first, second])
  assert helpers(table, state, first) == [second]
  assert helpers(table, state, second) == [first]
  # In whose row there is another now.
  state = after(table, [first, second], [third])
  assert helpers(table, state, first) == [-1]
  assert helpers(table, state, second) == [third]
  assert not table.is_missing(tf.constant(first))


def test_there_are_clients_below_k():
  table = helper_table.HelperTable(5, _WIDTH)
  for client, is_missing in ((0, False), (4, False), (5, True), (-1, True)):
    assert bool(table.is_missing(tf.constant(client))) == is_missing


def test_more_helpers_than_other_clients_are_refused():
  with pytest.raises(ValueError, match='num_helpers=5 .* num_clients=5 leave'):
    helper_table.HelperTable(num_clients=5, width=2, num_helpers=5)


def test_clients_are_sent_who_helps_whom_and_nothing_else():
  table = table_of(4)
  memory = helper_table.TableMemory(table)
  state = {'shared': after(table, [0, 1, 2])}
  sent = memory.send(state)
  assert list(sent['shared']) == ['owner', 'helpers']
  task = memory_task(client=3)
  task, missing = memory.read(task, sent)
  assert not missing
  np.testing.assert_array_equal(
    task.shared_state['helpers'], state['shared']['chosen']['helpers']
  )
  assert memory.read(memory_task(client=4), sent)[1]


@pytest.mark.parametrize('value, known', [(0.5, True), (np.nan, False)])
def test_a_table_that_would_not_be_finite_stays_as_it_was(value, known):
  table = table_of(4)
  memory = helper_table.TableMemory(table)
  state = memory.initial()
  update = client_task.LocalUpdate(
    delta=[],
    weight=tf.constant(1.0),
    metrics={},
    invalid=tf.constant(False),
    shared_change=table.scatter(tf.constant(2), tf.fill([_WIDTH], value)),
  )
  kept = memory.leave(memory_task(client=2), update, tf.constant(True))
  new = memory.merge(state, kept.sums)['shared']
  owners = [-1, -1, 2 if known else -1, -1]
  assert new['rows']['owner'].numpy().tolist() == owners
  assert int(new['round']) == known


def memory_task(client):
  zero = tf.constant(0)
  return client_task.ClientTask(
    weights=[],
    round=zero,
    seed=zero,
    hparams={},
    examples={},
    client=tf.constant(client),
    group=zero,
  )
