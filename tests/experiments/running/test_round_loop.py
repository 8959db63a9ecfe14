"""The loop alone, around a process of a few numpy lines."""

import functools
import json
import types

import numpy as np
import pytest

from experiments.measuring import evaluation
from experiments.running import (
  participants,
  round_loop,
  run_checkpoints,
)
from tff_ssl.simulation import client_faults, client_sampling


def metrics(non_finite=0, loss=0.5, clients=None, **finalizer):
  return {
    'client_work': {
      'train': {'loss': np.float32(loss), 'mask_rate': np.float32('nan')},
      'clients': clients
      or {'participating': np.int64(4), 'empty': np.int64(1)},
    },
    'aggregator': {'group_weights': np.array([2, 1], np.float32)},
    'finalizer': {'update_non_finite': np.int32(non_finite), **finalizer},
  }


class Process:
  """Adds the sum of the clients' keys to a number; as metrics, a script."""

  def __init__(self, non_finite=(), clients=()):
    self.non_finite = list(non_finite)
    self.clients = list(clients)
    self.keys = []
    self.states = []

  def next(self, state, keys):
    self.keys.append(keys)
    self.states.append(state)
    bad = self.non_finite.pop(0) if self.non_finite else 0
    clients = self.clients.pop(0) if self.clients else None
    return types.SimpleNamespace(
      state=state + sum(int(key.sum()) for key in keys),
      metrics=metrics(bad, clients=clients),
    )

  def get_model_weights(self, state):
    return state


class Stop:
  """A request to stop after some rounds."""

  def __init__(self, after=None):
    self.rounds_left = after

  @property
  def requested(self):
    return self.rounds_left == 0

  def droppable(self):
    if self.rounds_left is not None:
      self.rounds_left -= 1
    return self

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    pass


class Recorder:
  """Takes the place of checkpoints, logs and progress: notes every call."""

  def __init__(self):
    self.calls = []
    self.saved = []

  def save(self, number, state, files):
    self.calls.append(('save', number, state))
    self.saved.append(json.loads(files['run.json']))

  def oldest_round(self):
    return self.numbers('save')[0]

  def log(self, number, row):
    self.calls.append(('log', number, row))

  def update(self, number, row):
    self.calls.append(('update', number, row))

  def numbers(self, kind):
    return [number for name, number, _ in self.calls if name == kind]

  @property
  def rows(self):
    return {number: row for kind, number, row in self.calls if kind == 'log'}

  def values(self, name):
    """Returns the values of a metric by round, where a row has it."""
    return {n: row[name] for n, row in self.rows.items() if name in row}


_SAMPLING = {
  'num_clients': 9,
  'clients_per_round': 4,
  'num_groups': 2,
  'seed': 1,
  'redeal': False,
}


def run(
  process,
  first_round=0,
  state=0,
  stop=None,
  clients=None,
  further=(),
  before=(),
  total_rounds=5,
  client_states=None,
  **changed,
):
  recorder = Recorder()
  sampling = {name: changed.pop(name, v) for name, v in _SAMPLING.items()}
  interval = changed.pop('rounds_per_client_evaluation', None)
  min_completion = changed.pop('min_completion', 0.5)
  loop = round_loop.RoundLoop(
    process,
    cohorts=participants.Cohorts(
      functools.partial(client_sampling.sample_keys, **sampling),
      **{
        'faults': client_faults.ClientFaults(9, 1),
        'min_separation': 1,
        **changed,
      },
    ),
    checkpoints=run_checkpoints.RunCheckpoints(
      recorder, client_states=client_states
    ),
    total_rounds=total_rounds,
    rounds_per_checkpoint=3,
    read_weights=process.get_model_weights,
    min_completion=min_completion,
  )
  test = evaluation.TestMeasurement(
    lambda weights: {'accuracy': weights},
    total_rounds=total_rounds,
    rounds_per_evaluation=2,
    evaluate_clients=clients,
    rounds_per_client_evaluation=interval,
  )
  end = loop.run(
    state,
    first_round,
    stop=stop or Stop(),
    measurements=[test, *further],
    before=before,
    logs=[recorder.log],
    show=recorder.update,
  )
  return end, recorder


def test_order_and_intervals():
  state, recorder = run(Process())
  for kind in ('log', 'update'):
    assert recorder.numbers(kind) == [1, 2, 3, 4, 5]
  # Every third round and the last one; a row always before its checkpoint.
  assert recorder.numbers('save') == [3, 5]
  kinds = [name for name, number, _ in recorder.calls if number == 3]
  assert kinds == ['log', 'save', 'update']
  assert list(recorder.values('accuracy')) == [2, 4, 5]
  assert recorder.calls[-1][2]['accuracy'] == state


def test_clients_are_evaluated_at_their_intervals_and_at_the_end():
  def clients(number, weights):
    return {'accuracy': weights, 'client_accuracy_mean': number}

  _, recorder = run(
    Process(), clients=clients, total_rounds=7, rounds_per_client_evaluation=3
  )
  assert list(recorder.values('client_accuracy_mean')) == [3, 6, 7]
  # One evaluation a round, which gives the figures of the whole too.
  assert list(recorder.values('accuracy')) == [2, 3, 4, 6, 7]


def test_every_round_is_measured_and_its_metrics_join_the_row():
  seen = []

  def measure(finished):
    seen.append((finished.number, finished.state, finished.is_evaluated))
    return {'further': finished.number} if finished.is_evaluated else {}

  def measure_after(finished):
    assert ('further' in finished.row) == finished.is_evaluated
    return {}

  end, recorder = run(Process(), further=[measure, measure_after])
  due = [done for done, _, is_evaluated in seen if is_evaluated]
  assert [done for done, _, _ in seen] == [1, 2, 3, 4, 5] and due == [2, 4, 5]
  assert seen[-1][1] == end
  assert recorder.values('further') == {2: 2, 4: 4, 5: 5}


def test_what_is_measured_before_a_round_stands_in_its_row():
  seen = []

  def measure(rounds_done, state, keys, attempt):
    seen.append((rounds_done, state, keys))
    return {'received': state} if rounds_done % 2 else {}

  process = Process()
  _, recorder = run(process, before=[measure])
  states = [state for _, state, _ in seen]
  assert recorder.values('received') == {2: states[1], 4: states[3]}
  assert [done for done, _, _ in seen] == [0, 1, 2, 3, 4]
  assert [keys for _, _, keys in seen] == process.keys
  sums = [sum(int(key.sum()) for key in keys) for keys in process.keys]
  assert states == [sum(sums[:done]) for done in range(5)]


def test_validation_goes_with_the_test(monkeypatch):
  # In the place of the evaluation of a split.
  monkeypatch.setattr(
    evaluation,
    'Evaluator',
    lambda *unused: lambda weights: {'accuracy': -weights},
  )
  validate = evaluation.ValidationMeasurement(None, None, None)

  _, recorder = run(
    Process(),
    clients=lambda number, weights: {'accuracy': weights},
    further=[validate],
    rounds_per_client_evaluation=3,
  )
  accuracies = recorder.values('accuracy')
  assert list(accuracies) == [2, 3, 4, 5]
  validated = recorder.values('validation_accuracy')
  assert validated == {n: -value for n, value in accuracies.items()}


class States:
  """Takes the place of client states: notes every call."""

  def __init__(self):
    self.calls = []

  def record(self, number, clients):
    self.calls.append(('record', number, clients))
    return {'file': str(number)}

  def prune(self, clients, oldest):
    self.calls.append(('prune', oldest, clients))


def test_a_checkpoint_holds_the_states_of_all_clients_since_the_one_before():
  process, states = Process(), States()
  _, recorder = run(process, client_states=states)
  rounds = [{int(key[0]) for key in keys} for keys in process.keys]
  first, second = set.union(*rounds[:3]), set.union(*rounds[3:])
  assert states.calls == [
    ('record', 3, first),
    ('prune', 3, first),
    ('record', 5, second),
    ('prune', 3, second),
  ]
  states = [said['client_states'] for said in recorder.saved]
  assert states == [{'file': '3'}, {'file': '5'}]


def test_continuing_equals_not_stopping():
  whole = Process()
  state, _ = run(whole)
  first, second = Process(), Process()
  middle, recorder = run(first, total_rounds=2)
  assert recorder.numbers('save') == [2]
  end, _ = run(second, first_round=2, state=middle)
  assert end == state
  np.testing.assert_array_equal([*first.keys, *second.keys], whole.keys)


def test_participants_follow_seed_and_round():
  process, other = Process(), Process()
  run(process)
  run(other, seed=2)
  assert not np.array_equal(process.keys, other.keys)
  for keys in process.keys:
    clients, groups, slots, starts = np.stack(keys).T
    assert len(set(clients)) == 4 and set(clients) <= set(range(9))
    assert sorted(groups) == [0, 0, 1, 1]
    assert list(slots) == [0, 1, 2, 3] and list(starts) == list(groups)
  assert len({tuple(np.stack(k)[:, 0]) for k in process.keys}) > 1


def test_a_process_without_clients_gets_no_keys():
  process = Process()
  run(process, clients_per_round=0, num_groups=1)
  assert process.keys == [[]] * 5


def test_a_request_to_stop_saves_the_round_that_was_done():
  _, recorder = run(Process(), stop=Stop(after=2))
  assert recorder.numbers('log') == [1, 2]
  assert recorder.numbers('save') == [2]


def test_a_run_that_is_done_does_nothing():
  state, recorder = run(Process(), first_round=5, state=7)
  assert (state, recorder.calls) == (7, [])


def test_r16_three_rounds_without_progress_end_the_run(refusal):
  process = Process([0, 1, 1, 1])
  stalled = ('3 rounds in a row', '--learning_rate')
  with refusal(*stalled, error=round_loop.StalledError):
    run(process)
  assert len(process.keys) == 4


def test_r16_rounds_in_which_every_client_diverged_end_the_run():
  some, none = (
    {'participating': np.int64(n), 'non_finite': np.int64(2)} for n in (1, 0)
  )
  process = Process(clients=[none, some, none, none, none])
  with pytest.raises(round_loop.StalledError, match='clients_non_finite'):
    run(process, total_rounds=9)
  assert len(process.keys) == 5
  empty = {'participating': np.int64(0), 'non_finite': np.int64(0)}
  _, recorder = run(Process(clients=[empty] * 5))
  assert recorder.numbers('log') == [1, 2, 3, 4, 5]


def test_a_good_round_between_bad_ones_goes_on():
  _, recorder = run(Process([1, 1, 0, 1, 1]))
  found = recorder.values('update_non_finite')
  assert list(found.values()) == [1, 1, 0, 1, 1]


def lost(non_finite, invalid=0):
  """Metrics of a round of four clients, of which some are left out."""
  return {
    'participating': np.int64(4 - non_finite - invalid),
    'non_finite': np.int64(non_finite),
    'invalid': np.int64(invalid),
  }


def test_a_round_that_too_few_complete_is_repeated_with_others():
  process = Process(clients=[lost(0), lost(2, 1), lost(1, 2), lost(2)])
  states = States()
  end, recorder = run(process, total_rounds=2, client_states=states)
  assert recorder.values('attempts') == {2: 3}
  assert recorder.rows[2]['clients_participating'] == 2
  # Each attempt begins with the same state, and the last one counts.
  sums = [sum(int(key.sum()) for key in keys) for keys in process.keys]
  assert process.states == [0, *[sums[0]] * 3]
  assert end == sums[0] + sums[3]
  drawn = [tuple(np.stack(keys)[:, 0]) for keys in process.keys]
  assert len(set(drawn)) == 4
  # Those of a round that was given up may keep states, too.
  assert states.calls[0] == ('record', 2, set().union(*drawn))


def test_as_many_complete_a_round_as_the_share_says():
  """As floats .14 * 50 is more than 7."""
  everybody = {'num_clients': 50, 'clients_per_round': 50}
  faults = client_faults.ClientFaults(50, 1)
  seven = {**lost(43), 'participating': np.int64(7)}
  _, recorder = run(
    Process(clients=[seven] * 5),
    faults=faults,
    min_completion=0.14,
    **everybody,
  )
  assert recorder.values('attempts') == {}
  six = {**lost(44), 'participating': np.int64(6)}
  with pytest.raises(round_loop.GivenUpError, match='min_completion=0.14'):
    run(
      Process(clients=[six] * 5),
      faults=faults,
      min_completion=0.14,
      **everybody,
    )


@pytest.mark.parametrize(
  'non_finite, invalid, remedy',
  [(2, 1, '--learning_rate'), (1, 2, 'keeps clients from completing')],
)
def test_a_round_that_too_few_complete_ends_the_run(
  refusal, non_finite, invalid, remedy
):
  process = Process(clients=[lost(non_finite, invalid)] * 9)
  with refusal(
    'Round 1 was given up 5 times: of 4 clients',
    f'0 dropped out, {non_finite} not finite, {invalid} invalid',
    '--min_completion=0.5',
    remedy,
    error=round_loop.GivenUpError,
  ):
    run(process)
  assert len(process.keys) == 5


def test_three_attempts_without_a_finite_client_end_the_run():
  process = Process(clients=[lost(0), *[lost(4)] * 9])
  with pytest.raises(round_loop.StalledError, match='clients_non_finite'):
    run(process)
  assert len(process.keys) == 4


def test_who_drops_out_is_not_trained():
  process = Process()
  faults = client_faults.ClientFaults(9, 1, drop_out=0.5)
  _, recorder = run(process, faults=faults, min_completion=0.5)
  sizes = [len(keys) for keys in process.keys]
  dropped = recorder.values('clients_dropped').values()
  assert [4 - number for number in dropped] == sizes
  # Of four, two have to complete a round; in one of 5 rounds, fewer did.
  assert min(sizes) == 2 and recorder.values('attempts')
  everybody = client_faults.ClientFaults(9, 1, drop_out=1)
  unused = Process()
  with pytest.raises(round_loop.GivenUpError, match='4 dropped out'):
    run(unused, faults=everybody)
  assert unused.keys == []
  # Who wants it gets rounds of nobody.
  run(unused, faults=everybody, min_completion=0)
  assert unused.keys == [[]] * 5


def test_a_client_rests_as_long_as_asked_for():
  process = Process()
  in_threes = {'clients_per_round': 3, 'num_groups': 1}
  _, recorder = run(process, total_rounds=40, min_separation=3, **in_threes)
  clients = np.stack(process.keys)[:, :, 0]
  gaps = [
    np.diff(np.flatnonzero((clients == client).any(axis=1)))
    for client in range(9)
  ]
  assert np.concatenate(gaps).min() == 3
  # Nine clients in threes: all of them within any three rounds.
  assert all(set(np.ravel(clients[n : n + 3])) == {*range(9)} for n in (0, 20))
  table = np.array(recorder.saved[-1]['participation'], np.int32)
  resting = participants.Participation(table).resting(41, 3)
  assert set(resting) == set(np.ravel(clients[-2:]))


def test_flatten_names_and_leaves_out_what_is_undefined():
  row = round_loop.flatten(metrics(server={'loss': np.float32(0.25)}))
  assert row == {
    'train_loss': 0.5,
    'clients_participating': 4,
    'clients_empty': 1,
    'group_sizes': '2|1',
    'server_loss': 0.25,
    'update_non_finite': 0,
  }
  assert {type(value) for value in row.values()} == {float, int, str}


def test_rows_tell_time_and_memory():
  _, recorder = run(Process())
  row = recorder.calls[0][2]
  assert 0 <= row['seconds'] < 5
  assert row['python_mib'] > 10
