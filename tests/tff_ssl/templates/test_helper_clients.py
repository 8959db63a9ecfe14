"""Who is chosen for a helper, when, of whom; what clients read and leave."""

import collections
from types import SimpleNamespace

import federations
import numpy as np
import pytest
import tensorflow as tf
from comparing import are_equal
from sklearn import neighbors

from tff_ssl import plans
from tff_ssl.models import decomposed, functional
from tff_ssl.objectives import losses
from tff_ssl.templates import (
  client_state,
  client_task,
  faults,
  helper_clients,
  local_training,
)

_FEATURES, _CLASSES = 4, 3
_SPEC = federations.data_spec((_FEATURES,), in_context=True, num_clients=6)


def table_of(num_clients, num_helpers=1, interval=1, **more):
  return helper_clients.HelperTable(
    num_clients, _CLASSES, num_helpers=num_helpers, interval=interval, **more
  )


def outputs_of(client, round_num=0):
  rng = np.random.default_rng([client, round_num])
  return rng.dirichlet(np.ones(_CLASSES)).astype(np.float32)


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
  assert not table.read(memory_task(first), table.send(state))[1]


def test_there_are_clients_below_k():
  table = helper_clients.HelperTable(5, _CLASSES)
  for client, is_missing in ((0, False), (4, False), (5, True), (-1, True)):
    assert bool(table.read(memory_task(client), None)[1]) == is_missing


def test_more_helpers_than_other_clients_are_refused():
  with pytest.raises(ValueError, match='num_helpers=5 .* num_clients=5 leave'):
    helper_clients.HelperTable(num_clients=5, width=2, num_helpers=5)


def test_clients_are_sent_who_helps_whom_and_nothing_else():
  table = table_of(4)
  state = after(table, [0, 1, 2])
  sent = table.send(state)
  assert list(sent) == ['owner', 'helpers']
  task, missing = table.read(memory_task(client=3), sent)
  assert not missing
  np.testing.assert_array_equal(
    task.shared_state['helpers'], state['chosen']['helpers']
  )
  assert table.read(memory_task(client=4), sent)[1]


@pytest.mark.parametrize('value, known', [(0.5, True), (np.nan, False)])
def test_a_table_that_would_not_be_finite_stays_as_it_was(value, known):
  table = table_of(4)
  row = table.scatter(tf.constant(2), tf.fill([_CLASSES], value))
  result = client_task.TrainingResult([], (), {}, shared_change=row)
  update = client_task.LocalUpdate([], tf.constant(1.0), result)
  left, _ = table.leave(memory_task(client=2), update, tf.constant(True))
  new = table.merge(table.initial(), left)
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


class Recording:
  """A training that returns its start, and keeps what it was called with."""

  run_task = local_training.LocalTraining.run_task

  def run(self, start, examples, **arguments):
    self.start, self.arguments = start, arguments
    metrics = collections.OrderedDict(loss=tf.zeros([2]))
    return client_task.TrainingResult(
      start, (), metrics, tf.constant(0.0), tf.zeros([2])
    )


@pytest.fixture(scope='module')
def parts():
  return decomposed.Decomposition(
    federations.model(_FEATURES, _CLASSES, 'batch', hidden=(5,))
  )


@pytest.fixture
def build(parts, tmp_path):
  def build_training(**arguments):
    defaults = {
      'data_spec': _SPEC,
      'helpers': plans.Helpers(str(tmp_path), helper_interval=1),
    }
    return helper_clients.build_training(
      parts, Recording(), **{**defaults, **arguments}
    )

  return build_training


def values(spec, seed):
  rng = np.random.default_rng(seed)
  return tf.nest.map_structure(
    lambda s: tf.constant(rng.uniform(0.1, 1, s.shape), s.dtype), spec
  )


def task_of(training, weights, helpers, round_num=5, seed=7):
  chosen = training.table.initial()['chosen']
  chosen['owner'] = tf.range(6)
  chosen['helpers'] = tf.constant([[-1, -1]] * 2 + [helpers] + [[-1, -1]] * 3)
  return client_task.ClientTask(
    weights=weights,
    round=tf.constant(round_num),
    seed=tf.constant(seed),
    hparams={},
    examples={},
    client=tf.constant(2),
    group=tf.constant(-1),
    shared_state=chosen,
  )


def leave(folder, client, round_num, state):
  place = SimpleNamespace(
    client=tf.constant(client),
    round=tf.constant(round_num),
    seed=tf.constant(7),
  )
  client_state.write(folder, place, state, tf.constant(True))


def row_of(result):
  """The row of client 2 of the table, which is all that it sends of it."""
  rows, taken = result.shared_change
  assert taken.numpy().tolist() == [0, 0, 1, 0, 0, 0]
  assert rows['owner'].numpy().tolist() == [0, 0, 2, 0, 0, 0]
  outputs = rows['outputs'].numpy()
  assert not np.delete(outputs, 2, axis=0).any()
  return outputs[2]


def same(a, b):
  return all(are_equal(a, b))


def test_a_client_reads_exactly_its_helpers_newest_earlier_models(
  parts, build, tmp_path
):
  training = build()
  spec = parts.model.weights_spec
  models = {
    (client, round_num): values(spec, 100 * client + round_num)
    for client, round_num in ((4, 1), (4, 3), (4, 5), (1, 2), (0, 4))
  }
  for (client, round_num), model in models.items():
    leave(str(tmp_path), client, round_num, model)
  weights = values(parts.joint.weights_spec, 0)
  result = training.run(task_of(training, weights, [4, 1]), weights)
  peers = training.training.arguments['anchors']
  # Client 4's version of round 5 is of the present round, and not read.
  for helper, left in zip(
    peers.helpers, (models[4, 3], models[1, 2]), strict=True
  ):
    assert same(parts.total(parts.put(helper, 'psi')), left)
  assert peers.present.numpy().tolist() == [True, True]
  assert same(peers.sigma, parts.separate(weights)[0])
  assert same(training.training.start, parts.take(weights, 'psi'))
  np.testing.assert_array_equal(result.metrics['helpers'], [2, 1])


def test_without_helpers_none_counts(parts, build):
  training = build()
  weights = values(parts.joint.weights_spec, 0)
  result = training.run(task_of(training, weights, [-1, -1]), weights)
  peers = training.training.arguments['anchors']
  assert peers.present.numpy().tolist() == [False, False]
  np.testing.assert_array_equal(result.metrics['helpers'], [0, 1])
  zeros = tf.zeros([2, 1, _CLASSES])
  assert not losses.mean_divergence(
    zeros, tf.ones([1, _CLASSES]), peers.present
  )


def test_a_helper_whose_model_is_lost_is_an_error(parts, build, tmp_path):
  training = build()
  weights = values(parts.joint.weights_spec, 0)
  leave(str(tmp_path), 1, 2, values(parts.model.weights_spec, 1))
  with pytest.raises(tf.errors.InvalidArgumentError, match='helper client'):
    training.run(task_of(training, weights, [1, 4]), weights)


def test_a_client_leaves_its_model_and_its_outputs_on_the_noise(parts, build):
  training = build()
  weights = values(parts.joint.weights_spec, 0)

  def run(given=weights, **arguments):
    task = task_of(training, given, [-1, -1], **arguments)
    return training.run(task, given)

  result = run()
  assert same(result.client_state, parts.total(weights))
  assert row_of(result).shape == (_CLASSES,)
  np.testing.assert_allclose(row_of(result).sum(), 1, rtol=1e-6)
  # The noise is the same in every round, and another with another seed.
  assert same(row_of(run(round_num=6)), row_of(result))
  assert not same(row_of(run(seed=8)), row_of(result))
  other = values(parts.joint.weights_spec, 1)
  assert not same(row_of(run(other)), row_of(result))


def test_outputs_are_those_of_the_model_on_normal_noise():
  """Logits that are the features, and a 0, tell the noise itself again."""
  size = 500
  parts = decomposed.Decomposition(federations.model(size, size + 1))
  training = helper_clients.build_training(
    parts,
    Recording(),
    plans.Helpers('/nowhere', helper_interval=1),
    _SPEC,
  )
  kernel = np.eye(size, size + 1, dtype=np.float32)
  theta = functional.ModelWeights([kernel, np.zeros(size + 1, np.float32)], [])
  weights = tf.nest.map_structure(tf.constant, parts.shares(theta))
  row = np.log(
    row_of(training.run(task_of(training, weights, [-1, -1]), weights))
  )
  noise = row[:-1] - row[-1]
  assert abs(noise.mean()) < 0.1 and abs(noise.std() - 1) < 0.1
  neighbours = np.corrcoef(noise[:-1], noise[1:])
  np.testing.assert_allclose(neighbours, np.eye(2), atol=0.15)
