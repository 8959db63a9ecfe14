"""The benchmark prints what it promises, for rounds that are really run."""

import dataclasses
import json

import numpy as np
import pytest
import stores
from sklearn.datasets import load_digits

from benchmarks import (
  candidates,
  fedul,
  floor,
  machine,
  measurement,
  overheads,
  rounds,
  workloads,
)
from tff_ssl.models import dense

EXAMPLES = 8


@pytest.fixture
def tiny(monkeypatch):
  """Replaces the workload that has all candidates by one of milliseconds."""

  def build_model():
    return dense.dense(workloads.INPUT_SHAPE, hidden=(4,))

  workload = workloads.Workload(build_model, 2, 2, 4, has_augmentation=True)
  monkeypatch.setitem(workloads.WORKLOADS, 'cnn', workload)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  return workload


@pytest.mark.runs
def test_json_holds_every_field(tiny, capsys):
  rounds.main(['--json', '--only=cnn', '--repetitions=1'])
  results = json.loads(capsys.readouterr().out)

  assert set(results) == {'machine', 'cnn'}
  values = results['cnn']
  names = {'ours', 'worker', 'stock_tff', 'bare_loop', 'crl', 'crl_unsure'}
  assert set(values['median_ms']) == names
  assert [values[key] for key in ('clients', 'steps', 'batch_size')] == [
    tiny.clients,
    tiny.steps,
    tiny.batch_size,
  ]
  for name in names:
    # One repetition is both the best and the median.
    assert values[f'{name}_ms'] == values['median_ms'][name] > 0
  for ratio, (upper, lower) in {
    'ours_over_worker': ('ours', 'worker'),
    'ours_over_stock': ('ours', 'stock_tff'),
    'ours_over_bare': ('ours', 'bare_loop'),
    'crl_over_supervised': ('crl', 'ours'),
  }.items():
    expected = values[f'{upper}_ms'] / values[f'{lower}_ms']
    assert values[ratio] == pytest.approx(expected, rel=0.01, abs=0.001)


_STEPS = workloads.Steps(clients=2, steps=2, batch_size=4)
_FEDUL = fedul.FedUL(clients=2, steps=2, batch_size=4, sets=12)


@pytest.mark.runs
@pytest.mark.parametrize(
  'name, workload, ratios',
  [
    (
      'aggregation',
      _STEPS,
      {'coordinate_median_over_mean': ('coordinate_median', 'mean')},
    ),
    (
      'own_models',
      _STEPS,
      {
        'easgd_over_fedavg': ('easgd', 'fedavg'),
        'overlap_sgd_over_fedavg': ('overlap_sgd', 'fedavg'),
      },
    ),
    ('robust', _STEPS, {'robust_over_crl': ('robust', 'crl')}),
    ('fedul', _FEDUL, {'fedul_over_supervised': ('fedul', 'supervised')}),
  ],
)
def test_a_section_compares_what_it_says(
  name, workload, ratios, monkeypatch, capsys
):
  section = {**overheads.SECTIONS, 'fedul': fedul.SECTION}[name]
  assert section.ratios.items() >= ratios.items()
  two = {
    each: overheads.AGGREGATORS[each] for each in ('mean', 'coordinate_median')
  }
  monkeypatch.setattr(overheads, 'AGGREGATORS', two)
  monkeypatch.setattr(section, 'workload', workload)
  monkeypatch.setattr(section, 'ratios', ratios)
  monkeypatch.setattr(fedul, '_CALLS', 1)
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 0)
  rounds.main(['--json', f'--only={name}', '--repetitions=1'])
  results = json.loads(capsys.readouterr().out)
  assert set(results) == {'machine', name}
  values = results[name]
  assert set(values['median_ms']) == set(sum(ratios.values(), ()))
  for candidate, median in values['median_ms'].items():
    # One repetition is both the best and the median.
    assert values[f'{candidate}_ms'] == median > 0
  for ratio, (upper, lower) in ratios.items():
    expected = values[f'{upper}_ms'] / values[f'{lower}_ms']
    assert values[ratio] == pytest.approx(expected, rel=0.01, abs=0.001)
  if name == 'fedul':
    expected = values['layer_ms'] / values['step_ms']
    assert values['layer_over_step'] == pytest.approx(expected, abs=0.01)
  assert values.items() >= dataclasses.asdict(workload).items()


def test_scaling_and_memory_are_reported_by_size(tiny, monkeypatch, capsys):
  built = []

  def build_fake(workload, store):
    built.append((workload.clients, store.num_clients))
    return lambda: None

  fake_result = {'ours_ms': 1.0}
  monkeypatch.setattr(candidates, 'build_ours', build_fake)
  monkeypatch.setattr(measurement, 'compare', lambda *_: fake_result)
  monkeypatch.setattr(measurement.Section, 'compare', lambda *_: fake_result)
  monkeypatch.setattr(floor, 'compare', lambda *_: fake_result)
  monkeypatch.setattr(measurement, 'CLIENTS_SCALE', (2, 3))
  monkeypatch.setattr(measurement, 'POPULATION_SCALE', (25,))
  monkeypatch.setattr(measurement, 'MEMORY_AT_ROUNDS', (2, 99))
  rounds.main(['--json', '--repetitions=1', '--scaling', '--memory_rounds=3'])
  results = json.loads(capsys.readouterr().out)

  sections = ['dense', 'cnn', 'label_hungry', 'fedlabel', 'fedul', 'floor']
  for name in (*sections, *overheads.SECTIONS):
    assert results[name] == fake_result
  assert set(results['per_round_by_clients']) == {'2', '3'}
  assert set(results['per_round_by_population']) == {'25'}
  # The memory run comes last, with a store for the clients of one round.
  assert built == [(2, 2), (3, 3), (20, 25), (20, 20)]
  assert list(results['memory']) == ['ours']
  assert list(results['memory']['ours']) == ['2', '3']
  assert min(results['memory']['ours'].values()) > 100


def test_table_has_a_line_for_each_value(monkeypatch, capsys):
  results = {'machine': {'cores': 2}, 'dense': {'ours_ms': 1.5}}
  monkeypatch.setattr(rounds, 'run', lambda flags: results)
  rounds.main(['--only=dense'])
  lines = [line.split() for line in capsys.readouterr().out.splitlines()]
  assert lines == [['machine'], ['cores', '2'], ['dense'], ['ours_ms', '1.5']]


def test_machine_has_the_json_types_that_readers_expect():
  facts = json.loads(json.dumps(machine.describe()))
  assert facts['processor'] and facts['cores'] >= 1
  for unit in ('avx2', 'avx512', 'avx512_bf16', 'amx_bf16'):
    assert isinstance(facts[unit], bool)


def test_digits_are_enlarged_without_loss():
  images, labels = workloads.enlarged_digits()
  digits = load_digits()
  assert images.shape == (1797, 28, 28, 1) and images.dtype == np.uint8
  np.testing.assert_array_equal(labels, digits.target)
  # A pixel of the original that no border cuts: row 3, column 4.
  block = images[:, 3 * 4 - 2 : 4 * 4 - 2, 4 * 4 - 2 : 5 * 4 - 2, 0]
  expected = np.rint(digits.images[:, 3, 4] * (255 / 16))
  np.testing.assert_array_equal(block.min((1, 2)), expected)
  np.testing.assert_array_equal(block.max((1, 2)), expected)


def test_every_client_holds_what_a_round_processes(tmp_path):
  store = workloads.build_store(3, EXAMPLES, str(tmp_path))
  # None of the server.
  np.testing.assert_array_equal(store.part_sizes, [EXAMPLES] * 3 + [0])
  parts = [stores.read(store, client) for client in range(3)]
  labels = workloads.enlarged_digits()[1]
  for client, part in enumerate(parts):
    own = labels[client * EXAMPLES : (client + 1) * EXAMPLES]
    # A partition shuffles within a client.
    np.testing.assert_array_equal(np.sort(part.true_y), np.sort(own))
    np.testing.assert_array_equal(part.y, part.true_y)


def test_warm_up_is_not_timed(monkeypatch):
  calls = []
  monkeypatch.setattr(measurement, 'WARM_UP_ROUNDS', 2)
  seconds = measurement.time_rounds(
    {'a': lambda: calls.append('a'), 'b': lambda: calls.append('b')}, 3
  )
  assert calls == ['a', 'b'] * 5
  assert [len(values) for values in seconds.values()] == [3, 3]


@pytest.mark.parametrize(
  'arguments',
  [['--repetitions=0'], ['--memory_rounds=-1'], ['--memory_stock']],
)
def test_flags_are_checked(arguments, capsys):
  with pytest.raises(SystemExit):
    rounds.main(arguments)
  assert arguments[0].partition('=')[0] in capsys.readouterr().err
