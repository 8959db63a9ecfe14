"""What the authors' code does otherwise, each option against a property."""

import collections

import costs
import federations
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from comparing import are_equal, assert_close, largest_differences

from tff_ssl import objectives, optimizers
from tff_ssl.augmentation import views

_FEATURES, _CLASSES = 4, 3
_IN_SLOTS = federations.data_spec((_FEATURES,), in_context=True, num_slots=3)
_SUPERVISED = objectives.Supervised(views.PlainViews())

pytestmark = [pytest.mark.parts, pytest.mark.usefixtures('tff_context')]


def _examples(seed, size=12):
  return federations.examples(seed, size, (_FEATURES,), _CLASSES)


def _client(index, group=0, slot=None, start_group=None, size=12, hidden=0):
  """A client whose first `hidden` examples have no label."""
  arrays = _examples(index, size)
  arrays['y'][:hidden] = -1
  return federations.in_context(
    arrays,
    index,
    group,
    slot=np.int32(index if slot is None else slot),
    start_group=np.int32(group if start_group is None else start_group),
  )


@tff.tensorflow.computation
def _server_data():
  return tf.data.Dataset.from_tensors(_examples(1000))


def _model(norm):
  hidden = () if norm == 'none' else (6,)
  return federations.model(_FEATURES, _CLASSES, norm, hidden)


@costs.shared
def _sgd(rate, momentum=0.0):
  return optimizers.build_nesterov_sgd(rate, momentum=momentum)


# A process with a server, full batches and clients with labels.
_build = federations.builder(
  'grouping',
  _model,
  server_data=_server_data,
  data_spec=_IN_SLOTS,
  client_objective=_SUPERVISED,
  client_optimizer=_sgd(0.5),
  server_optimizer=_sgd(0.3),
  batch_size=12,
  local_steps=2,
  server_batch_size=12,
  server_steps=2,
)
_build_at_clients = federations.builder(
  'grouping_client_labels',
  _model,
  data_spec=_IN_SLOTS,
  num_groups=1,
  client_objective=_SUPERVISED,
  client_optimizer=_sgd(0.5, momentum=0.9),
  batch_size=12,
  local_steps=1,
)


def _flat(state):
  weights = state.global_model_weights
  return [np.asarray(w) for w in tf.nest.flatten(weights)]


def _rounds(process, *rounds, state=None):
  state = state or process.initialize()
  for clients in rounds:
    state, _ = process.next(state, clients)
  return state


def _assert_equal(state, other, atol=1e-6):
  assert_close(_flat(state), _flat(other), atol=atol)


def _differs(state, other):
  return max(largest_differences(_flat(state), _flat(other))) > 1e-4


def _with_random_groups(state):
  rng = np.random.default_rng(3)
  weights = tf.nest.map_structure(
    lambda w: rng.normal(size=np.shape(w)).astype(np.float32),
    state.global_model_weights,
  )
  return state._replace(global_model_weights=weights)


class TestStartModel:
  """With learning rates of 0 a client returns the model it started from."""

  _STARTS = (1, 0, 2, 1)
  _GROUPS = (0, 1, 2, 0)

  def _round(self, start_model, starts):
    process = _build(
      num_groups=3,
      start_model=start_model,
      client_optimizer=_sgd(0.0),
      server_optimizer=_sgd(0.0),
    )
    state = _with_random_groups(process.initialize())
    clients = [
      _client(i, group, start_group=start)
      for i, (group, start) in enumerate(zip(self._GROUPS, starts, strict=True))
    ]
    output = process.next(state, clients)
    return _flat(state), _flat(output.state), output.metrics

  @pytest.mark.parametrize(
    'start_model, num_invalid', [('slot', 2), ('group', 0)]
  )
  def test_round_is_eq_7_with_the_start_models(self, start_model, num_invalid):
    old, new, _ = self._round(start_model, self._STARTS)
    starts = self._STARTS if start_model == 'slot' else self._GROUPS
    for before, after in zip(old, new, strict=True):
      for group in range(3):
        own = [
          s for s, g in zip(starts, self._GROUPS, strict=True) if g == group
        ]
        members = sum(before[s] for s in own)
        expected = (before.mean(0) + members) / (len(own) + 1)
        np.testing.assert_allclose(after[group], expected, atol=1e-6)
    # A start group that does not exist.
    _, _, metrics = self._round(start_model, (1, 3, -1, 1))
    assert metrics['client_work']['clients']['invalid'] == num_invalid


class TestClientMomentum:
  @pytest.mark.parametrize('client_momentum', ['slot', 'mean'])
  def test_one_step_in_two_rounds_is_two_steps_in_one(self, client_momentum):
    kept = _build_at_clients(client_momentum=client_momentum)
    at_once = _rounds(_build_at_clients(local_steps=2), [_client(0)])
    _assert_equal(_rounds(kept, [_client(0)], [_client(0)]), at_once)
    reset = _rounds(_build_at_clients(), [_client(0)], [_client(0)])
    assert _differs(reset, at_once)

  def test_the_mean_of_single_steps_is_central_training(self):
    """Three rounds of two clients are three steps on all their examples."""
    averaged = _build_at_clients(client_momentum='mean')
    round_of = [_client(0, slot=0), _client(1, slot=1)]
    state = _rounds(averaged, round_of, round_of, round_of)
    pooled = _client(0)
    pooled['examples'] = tf.data.Dataset.from_tensors(
      tf.nest.map_structure(
        lambda *parts: np.concatenate(parts), _examples(0), _examples(1)
      )
    )
    central = _rounds(_build_at_clients(local_steps=3, batch_size=24), [pooled])
    _assert_equal(state, central)
    kept_apart = _build_at_clients(client_momentum='reset')
    assert _differs(_rounds(kept_apart, *[round_of] * 3), central)

  def test_momentum_stays_with_the_slot_whoever_fills_it(self):
    process = _build_at_clients(client_momentum='slot')
    first = [_client(0, slot=0), _client(1, slot=2)]
    state = _rounds(process, first)
    before = tf.nest.flatten(state.client_work['slots'])
    # Slot 2 is filled by an empty client, slot 3 does not exist.
    second = [
      _client(5, slot=0),
      _client(1, slot=2, size=0),
      _client(2, slot=3),
    ]
    output = process.next(state, second)
    after = tf.nest.flatten(output.state.client_work['slots'])
    kept = [
      are_equal([v[i] for v in before], [v[i] for v in after]) for i in range(3)
    ]
    assert not all(kept[0]) and all(kept[1]) and all(kept[2])
    assert output.metrics['client_work']['clients']['invalid'] == 1
    assert output.metrics['client_work']['clients']['empty'] == 1


class TestServerAfterClients:
  @pytest.mark.parametrize('num_groups', [1, 2])
  def test_it_trains_the_average_of_the_clients(self, num_groups):
    """One round, against one of clients and then one of the server alone."""
    clients = [_client(i, group=i % num_groups) for i in range(4)]
    after = _build(num_groups=num_groups, server_order='after')
    actual = after.next(after.initialize(), clients).state

    # Its server does not move, and hardly counts.
    alone = _build(
      num_groups=num_groups, server_optimizer=_sgd(0.0), server_weight=1e-7
    )
    averaged = alone.next(alone.initialize(), clients).state
    beside = _build(num_groups=num_groups)
    start = beside.set_model_weights(
      beside.initialize(), alone.get_model_weights(averaged)
    )
    expected = _rounds(beside, [_client(0, size=0)], state=start)
    assert_close(
      after.get_model_weights(actual).trainable,
      beside.get_model_weights(expected).trainable,
      atol=1e-5,
    )
    if num_groups == 2:
      # Groups keep models of their own.
      assert any(np.abs(w[0] - w[1]).max() > 1e-3 for w in _flat(actual))


@pytest.mark.dear
@pytest.mark.parametrize(
  'teacher', costs.rest_in('parts', ['received', 'trained'])
)
def test_the_received_teacher_is_the_mean_of_the_groups(teacher):
  objective = objectives.ConsistencyRegularization(
    views.PlainViews(), threshold=0.0, teacher=teacher
  )
  process = _build(
    num_groups=3, client_objective=objective, client_optimizer=_sgd(0.0)
  )
  state = _with_random_groups(process.initialize())
  kernels, biases = _flat(state)
  used = slice(None) if teacher == 'received' else slice(2, 3)
  client = _client(0, group=2)
  metrics = process.next(state, [client]).metrics['client_work']['train']
  x, y = _examples(0).values()
  logits = x @ kernels[used].mean(axis=0) + biases[used].mean(axis=0)
  expected = np.mean(np.argmax(logits, axis=1) == y)
  assert metrics['pseudo_label_accuracy'] == pytest.approx(expected)
  others = slice(2, 3) if teacher == 'received' else slice(None)
  other = x @ kernels[others].mean(axis=0) + biases[others].mean(axis=0)
  assert np.mean(np.argmax(other, axis=1) == y) != pytest.approx(expected)


class TestServerReplicas:
  def test_replicas_on_whole_batches_are_one_server(self):
    clients = [_client(i, group=i % 2) for i in range(4)]
    one = _rounds(_build(num_groups=2), clients, clients)
    each = _build(num_groups=2, server_replicas='per_group')
    _assert_equal(_rounds(each, clients, clients), one)

  def test_each_replica_has_its_own_batches_and_momentum(self):
    """Without clients a group's model is its server replica."""
    process = _build(
      num_groups=2,
      server_replicas='per_group',
      server_batch_size=3,
      server_optimizer=_sgd(0.3, momentum=0.9),
    )
    nobody = [_client(0, group=5)]
    first = _rounds(process, nobody)
    assert all(np.abs(w[0] - w[1]).max() > 1e-4 for w in _flat(first))
    second = _rounds(process, nobody, state=first)
    leaves = map(np.asarray, tf.nest.flatten(first.finalizer['optimizer']))
    # Of the kernels of both replicas.
    velocity = next(leaf for leaf in leaves if leaf.ndim == 3)
    assert np.abs(velocity[0] - velocity[1]).max() > 1e-3
    # With the replicas' momenta exchanged the next round is another one.
    exchanged = tf.nest.map_structure(
      lambda leaf: np.asarray(leaf)[::-1], first.finalizer['optimizer']
    )
    finalizer = collections.OrderedDict(first.finalizer, optimizer=exchanged)
    other = _rounds(process, nobody, state=first._replace(finalizer=finalizer))
    for replica in range(2):
      models = (
        [leaf[replica] for leaf in _flat(state)] for state in (second, other)
      )
      assert max(largest_differences(*models)) > 1e-4

  def test_hyperparameters_reach_every_replica(self):
    process = _build(num_groups=2, server_replicas='per_group')
    state = process.initialize()
    hparams = process.get_hparams(state)
    assert np.shape(hparams['finalizer']['learning_rate']) == ()
    hparams['finalizer']['learning_rate'] = np.float32(0.0)
    state = process.set_hparams(state, hparams)
    after = _rounds(process, [_client(0, group=5)], state=state)
    _assert_equal(after, state)


def test_local_statistics_are_those_of_the_server():
  nobody, clients = [_client(0, size=0)], [_client(1), _client(2)]

  def statistics(bn_statistics, participants):
    process = _build(norm='batch', num_groups=1, bn_statistics=bn_statistics)
    state = _rounds(process, participants)
    return np.concatenate(
      [np.ravel(w) for w in state.global_model_weights.non_trainable]
    )

  server = statistics('local', nobody)
  np.testing.assert_array_equal(statistics('local', clients), server)
  assert np.abs(statistics('averaged', clients) - server).max() > 1e-3


class TestLabelsAtClients:
  def test_one_group_with_all_labels_is_uniform_fedavg(self):
    clients = [[_client(i, size=12) for i in range(3)]] * 2
    expected = federations.builder('fedavg', _model)(
      data_spec=_IN_SLOTS,
      client_optimizer=_sgd(0.5, momentum=0.9),
      batch_size=12,
      local_steps=1,
      client_weighting='uniform',
    )
    actual = _flat(_rounds(_build_at_clients(), *clients))
    assert_close(
      [stack[0] for stack in actual],
      _flat(_rounds(expected, *clients)),
      atol=1e-6,
    )

  def test_closed_masks_leave_the_labelled_examples(self):
    """tau = 1.0: as if the client had its labelled examples alone."""
    process = _build_at_clients(
      client_objective=None, threshold=1.0, labelled_batch_size=4
    )
    output = process.next(process.initialize(), [_client(0, hidden=8)])
    train = output.metrics['client_work']['train']
    assert train['mask_rate'] == 0 and train['unlabelled_loss'] == 0
    alone = _build_at_clients(batch_size=4)
    labelled = _client(0)
    labelled['examples'] = tf.data.Dataset.from_tensors(
      tf.nest.map_structure(lambda values: values[8:], _examples(0))
    )
    _assert_equal(output.state, _rounds(alone, [labelled]))

  def test_a_client_without_labels_trains_on_pseudo_labels(self):
    process = _build_at_clients(client_objective=None, threshold=0.0)
    state = process.initialize()
    output = process.next(state, [_client(0, hidden=12)])
    train = output.metrics['client_work']['train']
    assert np.isnan(train['loss']) and train['mask_rate'] == 1
    assert _differs(output.state, state)

  def test_without_usable_clients_nothing_moves(self):
    process = _build_at_clients(num_groups=2)
    state = process.initialize()
    output = process.next(state, [_client(0, size=0), _client(1, group=7)])
    _assert_equal(output.state, state, atol=0)
    assert output.metrics['finalizer']['update_non_finite'] == 0


def test_clients_and_server_share_the_clock_of_the_schedule():
  """The rate is 0 before step 4, where the server's second round begins."""
  process = _build(
    num_groups=1,
    local_steps=2,
    server_steps=4,
    server_optimizer=_sgd(0.0),
    schedule=lambda step: tf.where(step < 4, 0.0, 1.0),
  )
  start = process.initialize()
  clients = [_client(0), _client(1)]
  first = _rounds(process, clients, state=start)
  _assert_equal(first, start, atol=0)
  assert _differs(_rounds(process, clients, state=first), first)
