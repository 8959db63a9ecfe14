"""`python -m tff_ssl.testing.faults`: what failing clients do to a process.

Tests are named after the rows of the page of what is promised: R13 drop-outs
and stragglers, R14 groups, R15 groups that do not exist, B6 odd data, A1 to A3
and A8 what corrupt clients send.
"""

import csv
import dataclasses
import pathlib
import re
import types
from collections.abc import Sequence
from typing import NamedTuple

import costs
import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import stacks
from tff_ssl.algorithms import PROCESSES
from tff_ssl.simulation import contexts
from tff_ssl.templates import (
  composition,
  finalizers,
  helper_clients,
  memories,
  server_training,
)
from tff_ssl.templates import faults as guards
from tff_ssl.testing import TinyProblem, fault_rounds, faults
from tff_ssl.testing.fault_rounds import FAULTS, Measured

SOUND = Measured(True, '', 0.8, 0.8, 0.8, 0.8, 1)


@costs.shared
def rows(process, aggregator, *names):
  """The rows of some faults, by fault and share."""
  problem = TinyProblem(PROCESSES[process])
  measured = faults.measure(problem, aggregator, names or tuple(FAULTS))
  return {(row.fault, row.share): row for row in measured}


def ended(process, aggregator, *names):
  """How the rows of some faults ended, and why."""
  return [
    (row.ended, row.reason)
    for (fault, _), row in rows(process, aggregator).items()
    if fault in names
  ]


# Who reports.


@pytest.mark.parametrize('name', FAULTS)
def test_a_share_of_ten_clients_fails(name):
  for share in FAULTS[name].shares:
    cohorts = [fault_rounds.draw(name, share, i, 2) for i in range(5)]
    sound = [{int(key[0]) for key in each.sound} for each in cohorts]
    failing = [10 - len(each) for each in sound]
    if FAULTS[name].drawn_by == 'corrupt_share':
      # The same ones in all rounds, and exactly so many.
      assert failing == [round(share * 10)] * 5
      assert sound.count(sound[0]) == 5
    else:
      assert len(set(map(frozenset, sound))) > 1
      assert 0 < sum(failing) < 50
    for cohort in cohorts:
      assert cohort.reporting[: len(cohort.sound)] == cohort.sound
      for key in cohort.sound:
        assert key[0] < 10 and key[1] in (0, 1)
        np.testing.assert_array_equal(key[4:], [0, 100])
      spoilt = cohort.reporting[len(cohort.sound) :]
      assert len(spoilt) == cohort.num_faulty


def sent(name, share=0.3):
  """The keys of clients with a fault in one round."""
  cohort = fault_rounds.draw(name, share, 20, 2)
  return np.array(cohort.reporting[len(cohort.sound) :]).reshape(-1, 6)


def test_what_clients_with_a_fault_are():
  # The first of the kinds of corruption is not a number, the second too large.
  assert sent('nan')[:, 4].tolist() == [1] * 3
  assert sent('overflow')[:, 4].tolist() == [2] * 3
  assert sent('drop_out').size == sent('empty_round').size == 0
  twice = sent('duplicate')
  assert sorted(twice[:, 0]) == sorted([*set(twice[:, 0])] * 2)
  late = sent('straggler')
  assert len(late) and ((late[:, 5] > 0) & (late[:, 5] < 100)).all()
  assert not {*sent('unknown_group')[:, 1]} & {0, 1}
  assert (sent('no_labels', 0.1)[:, 0] >= 10).all()


def test_odd_clients_hold_what_their_names_say():
  clients = fault_rounds._clients(TinyProblem(PROCESSES['fedavg']))
  none, one, of_class, unlabelled, broken = clients[10:]
  assert [len(each['y']) for each in (none, one)] == [0, 1]
  assert len(of_class['y']) > 1 and len({*of_class['y']}) == 1
  assert {*unlabelled['y']} == {-1} != {*unlabelled['true_y']}
  assert np.isnan(broken['x'][0]).all() and np.isfinite(broken['x'][1:]).all()
  assert all(np.isfinite(each['x']).all() for each in clients[:-1])


def test_faults_are_of_what_a_process_has():
  def those_of(name):
    problem = TinyProblem(PROCESSES[name])
    return {each for each in FAULTS if not fault_rounds.applies(each, problem)}

  assert those_of('fedavg') == {'unknown_group'}
  # Its clients have no labels.
  assert those_of('grouping') == {'flipped_labels', 'no_labels'}
  # All of its clients are in one group, whichever they name.
  assert those_of('fedavg_ssfl') - those_of('grouping') == {'unknown_group'}
  spec = dataclasses.replace(PROCESSES['fedavg'], builder=lambda model: None)
  # Inside such a process, nothing can be made to go wrong.
  assert not fault_rounds.applies('nan', TinyProblem(spec))
  assert fault_rounds.applies('drop_out', TinyProblem(spec))


def test_counts_are_exact_or_said_to_be_wrong():
  cohort = fault_rounds.draw('nan', 0.3, 20, 1)

  def said(name='nan', **counts):
    known = {'participating': 7, 'empty': 0, 'non_finite': 3, 'invalid': 0}
    metrics = {'client_work': {'clients': {**known, **counts}}}
    return fault_rounds._miscounts(metrics, name, cohort)

  assert said() == ''
  assert said(non_finite=2) == '2 non_finite, not 3'
  assert said(participating=8, empty=1) == (
    '1 empty, not 0, 8 participating, not 7'
  )
  assert said('stale') == '3 non_finite, not 0, 7 participating, not 10'
  # Without labels, some methods train and others do not.
  assert said('no_labels', non_finite=0) == ''
  nothing = fault_rounds._miscounts({'client_work': {}}, 'nan', cohort)
  assert nothing == 'the metrics have no client_work/clients'


_ROOT = pathlib.Path(__file__).parents[3]
_PAGE = _ROOT / 'docs/reference/faults.md'
_STORED = _ROOT / 'results/faults.csv'


def test_stored_rows_are_whole_and_none_is_broken():
  columns = [field.name for field in dataclasses.fields(faults.Row)]
  stored = [
    dict(zip(columns, row, strict=True)) for row in faults.read(_STORED)
  ]
  for row in stored:
    assert row['process'] in PROCESSES and row['ended'] != 'BROKEN'
  measured = {(row['process'], row['aggregator']) for row in stored}
  assert ('fedavg', 'mean') in measured
  for pair in measured:
    rows_of_pair = [
      row for row in stored if (row['process'], row['aggregator']) == pair
    ]
    problem = TinyProblem(PROCESSES[pair[0]])
    assert rows_of_pair[0]['ended'] == 'refused' or [
      (row['fault'], float(row['share'])) for row in rows_of_pair
    ] == [
      (name, share)
      for name, fault in FAULTS.items()
      if fault_rounds.applies(name, problem)
      for share in fault.shares
    ]


def test_the_page_has_all_faults_with_their_shares():
  lines = _PAGE.read_text(encoding='utf-8').splitlines()
  for name, fault in FAULTS.items():
    (line,) = [
      line
      for line in lines
      if re.match(r'\| `[a-z_`, ]+ \| \d', line) and f'`{name}`' in line
    ]
    shares = ', '.join(f'{share * 100:.0f}' for share in fault.shares)
    assert f'| {shares}% |' in line
    assert fault.counted is None or line.endswith(f'| `{fault.counted}` |')


# What is promised.


@pytest.mark.parametrize(
  'fault, aggregator, measured, outcome',
  [
    ('nan', 'mean', SOUND, 'kept'),
    ('nan', 'mean', SOUND._replace(is_finite=False), 'BROKEN'),
    ('nan', 'mean', SOUND._replace(miscounts='1, not 3'), 'BROKEN'),
    ('nan', 'mean', SOUND._replace(recovered_after=None), 'BROKEN'),
    ('nan', 'mean', SOUND._replace(accuracy=0.69), 'BROKEN'),
    ('nan', 'mean', SOUND._replace(accuracy=0.71), 'kept'),
    # They count as sound, so what they cost is no promise.
    ('flipped_signs', 'mean', SOUND._replace(accuracy=0.1), 'kept'),
    ('flipped_signs', 'mean', SOUND._replace(recovered_after=None), 'BROKEN'),
    ('exploding', 'mean', SOUND._replace(recovered_after=None), 'no promise'),
    ('exploding', 'mean', SOUND._replace(miscounts='1, not 0'), 'no promise'),
    ('exploding', 'mean', SOUND._replace(is_finite=False), 'BROKEN'),
    ('exploding', 'mean', SOUND, 'kept'),
    ('exploding', 'robust', SOUND._replace(recovered_after=None), 'BROKEN'),
  ],
)
def test_when_a_row_is_broken(fault, aggregator, measured, outcome):
  problem = TinyProblem(PROCESSES['fedavg'])
  actual, reason = faults._verdict(problem, aggregator, fault, 0.1, measured)
  assert actual == outcome
  assert bool(reason) == (outcome != 'kept')


def test_how_many_exploding_clients_are_borne():
  def borne(process, aggregator):
    problem = TinyProblem(PROCESSES[process])
    return [
      faults.is_borne(problem, aggregator, 'exploding', share)
      for share in (0.1, 0.3)
    ]

  # A median holds while fewer than half are bad: in groups, three of five are
  # not. A trimmed mean of five leaves nobody out.
  assert borne('fedavg', 'median') == [True, True]
  assert borne('grouping', 'median') == [True, False]
  assert borne('fedavg', 'trimmed_mean') == [True, False]
  assert borne('grouping', 'trimmed_mean') == [False, False]
  assert borne('fedavg', 'robust') == [True, False]
  assert borne('fedavg', 'mean') == [False, False]


# Rows of processes.

KINDS = (('fedavg', 'mean'), ('fedavg', 'robust'), ('grouping', 'robust'))


@pytest.mark.contract
@pytest.mark.parametrize('process, aggregator', KINDS)
@pytest.mark.parametrize(
  'names',
  [
    pytest.param(
      ('drop_out', 'straggler', 'duplicate', 'empty_round'), id='r13'
    ),
    pytest.param(('one_client', 'unknown_group'), id='r14-r15'),
    pytest.param(
      ('no_examples', 'one_example', 'one_class', 'no_labels', 'nan_pixels'),
      id='b6',
    ),
    pytest.param(('nan', 'overflow'), id='a1-a3'),
    pytest.param(('flipped_signs', 'flipped_labels', 'stale'), id='a2-a8'),
  ],
)
def test_promises_are_kept(process, aggregator, names, tff_context):
  outcomes = ended(process, aggregator, *names)
  assert outcomes and set(outcomes) == {('kept', '')}


@pytest.mark.contract
def test_a3_what_explodes_is_borne_by_robust_alone(tff_context):
  assert rows('fedavg', 'robust')['exploding', 0.1].ended == 'kept'
  row = rows('fedavg', 'mean')['exploding', 0.1]
  assert row.ended == 'no promise' and 'not back' in row.reason
  assert row.accuracy < 0.5 < row.clean


@pytest.mark.contract
def test_a1_who_is_left_out_costs_what_leaving_them_out_costs(tff_context):
  for row in rows('fedavg', 'mean').values():
    if FAULTS[row.fault].counted:
      assert row.accuracy == row.left_out


# With its guard off, a row is broken.


def of_find_faults(name):
  """Clients with a fault are not found."""
  find = guards.find_faults

  def find_others(update, examples, further=()):
    found, _ = find(update, examples, further)
    found[name] = tf.constant(False)
    return found, ~tf.reduce_any(list(found.values()))

  return guards, 'find_faults', find_others


def at(module, name, off):
  """A guard is off where one module asks for it, and nowhere else."""
  return module, 'faults', types.SimpleNamespace(**{**vars(guards), name: off})


class Control(NamedTuple):
  """A guard that is switched off.

  Attributes:
    fault: What it is there for.
    patches: Where it is.
    reason: Why the row is broken then.
    behind: Guards in front of it, which let nothing through. With these off
      alone, the row is not broken for this reason.
  """

  fault: str
  patches: Sequence[tuple[object, str, object]]
  reason: str
  process: str = 'fedavg'
  aggregator: str = 'mean'
  behind: Sequence[tuple[object, str, object]] = ()


def _finite(*unused):
  return tf.constant(True)


_FOUND = [of_find_faults('non_finite')]
_WRONG, _LOST = 'clients counted wrongly', 'the state is not finite'
CONTROLS = {
  'clients that are not finite': Control('nan', _FOUND, _WRONG),
  'the update of the server': Control(
    'nan', [at(finalizers, 'all_finite', _finite)], _LOST, behind=_FOUND
  ),
  'the update of a server that trains': Control(
    'nan',
    [at(server_training, 'all_finite', _finite)],
    _LOST,
    process='grouping',
    behind=_FOUND,
  ),
  'the memory of scaffold': Control(
    'nan_pixels',
    [at(memories, 'if_finite', lambda new, old: new)],
    _LOST,
    process='scaffold',
    behind=_FOUND,
  ),
  'the helpers of fedmatch': Control(
    'nan_pixels',
    [at(helper_clients, 'if_finite', lambda new, old: new)],
    _LOST,
    process='fedmatch',
    behind=_FOUND,
  ),
  # Numbers that are finite, whatever their norm.
  'norms that are not finite': Control(
    'overflow',
    [(guards, 'has_finite_norm', guards.all_finite)],
    f'{_LOST}|{_WRONG}',
    aggregator='clip',
  ),
  # The estimate of a quantile of nobody's norms.
  'rounds of nobody': Control(
    'empty_round',
    [
      (
        composition.aggregators,
        'rest_without_clients',
        lambda process, **unused: process,
      )
    ],
    _LOST,
    aggregator='clip',
  ),
  'clients without examples': Control(
    'no_examples', [of_find_faults('empty')], _WRONG
  ),
  'groups that do not exist': Control(
    'unknown_group',
    [(stacks, 'is_missing', lambda *unused: tf.constant(False))],
    _WRONG,
    process='grouping',
  ),
  'a mean in the place of what bears them': Control(
    'exploding',
    [(faults, 'is_borne', lambda *unused: True)],
    'not back after 5 rounds',
  ),
}


@pytest.mark.contract
@pytest.mark.parametrize('name', CONTROLS)
def test_with_its_guard_off_a_row_is_broken(name, monkeypatch, tff_context):
  control = CONTROLS[name]

  def is_broken():
    problem = TinyProblem(PROCESSES[control.process])
    rows = faults.measure(problem, control.aggregator, [control.fault])
    return any(
      row.ended == 'BROKEN' and re.search(control.reason, row.reason)
      for row in rows
    )

  for patch in control.behind:
    monkeypatch.setattr(*patch)
  assert not (control.behind and is_broken())
  for patch in control.patches:
    monkeypatch.setattr(*patch)
  assert is_broken()


# The command.


def main(*arguments):
  return faults.main(['faults', *map(str, arguments)])


@pytest.mark.dear
def test_the_command_says_how_each_row_ended(tmp_path, capsys):
  table = tmp_path / 'faults.csv'
  arguments = ('fedavg', '--aggregators=mean', '--faults=exploding,nan')
  assert main(*arguments, f'--output={table}') == 0
  _, *lines, last, written = capsys.readouterr().out.splitlines()
  assert [line.split()[1] for line in lines] == ['nan'] * 2 + ['exploding'] * 2
  assert re.match(r'fedavg: 2 kept, 0 BROKEN, 2 no promise, 0 refused', last)
  assert written == f'{table} is written.'
  with table.open() as file:
    stored = list(csv.DictReader(file))
  assert [row['share'] for row in stored] == ['0.100', '0.300'] * 2
  # A1: as if they had been left out.
  assert stored[1]['accuracy'] == stored[1]['left_out']


ROW = faults.Row('mine', 'mean', 'nan', 0.1, 0.8, 0.8, None, 0.8, 1, 'kept')


def test_rows_of_others_stay(tmp_path):
  path = tmp_path / 'faults.csv'
  other = dataclasses.replace(ROW, process='another')
  stale = dataclasses.replace(ROW, fault='stale')
  refused = faults.Row('mine', 'dp', reason='no, "never"')

  def stored():
    return [(row[:3], row[-2:]) for row in faults.read(path)]

  faults.write(path, [stale, ROW, refused, other])
  faults.write(path, [dataclasses.replace(ROW, ended='BROKEN', reason='x')])
  expected = [
    (['another', 'mean', 'nan'], ['kept', '']),
    (['mine', 'mean', 'nan'], ['BROKEN', 'x']),
    (['mine', 'mean', 'stale'], ['kept', '']),
    (['mine', 'dp', ''], ['refused', 'no, "never"']),
  ]
  assert stored() == expected
  # What is refused now has no rows, and what was refused is measured now.
  now = dataclasses.replace(ROW, aggregator='dp')
  faults.write(path, [dataclasses.replace(refused, aggregator='mean'), now])
  assert stored() == [
    expected[0],
    (['mine', 'mean', ''], ['refused', 'no, "never"']),
    (['mine', 'dp', 'nan'], ['kept', '']),
  ]
  page = tmp_path / 'faults.md'
  faults.write(page, [ROW])
  head, _, row = page.read_text().splitlines()
  assert head.startswith('| process | aggregator | fault | share | before')
  assert row == (
    '| mine | mean | nan | 0.100 | 0.800 | 0.800 |  | 0.800 | 1 | kept |  |'
  )


def test_what_a_builder_refuses_and_what_stops(monkeypatch):
  def build(model, *, wiring=None, **unused):
    raise ValueError('never\nthis')

  problem = TinyProblem(dataclasses.replace(PROCESSES['fedavg'], builder=build))
  (row,) = faults.measure(problem, 'robust')
  assert (row.ended, row.reason) == ('refused', 'never this')
  # It is asked for nothing there.
  (row,) = faults.measure(problem, 'mean')
  assert (row.ended, row.reason) == ('BROKEN', 'never this')

  class Stops:
    def __init__(self, problem, aggregator):
      self.problem = problem

    def measure(self, fault, share):
      raise KeyError(fault)

  monkeypatch.setattr(fault_rounds, 'Bench', Stops)
  (row,) = faults.measure(problem, 'robust', ['empty_round'])
  assert (row.ended, row.reason) == (
    'BROKEN',
    "stops with KeyError: 'empty_round'",
  )


@pytest.mark.parametrize(
  'arguments, message',
  [
    ((), 'give a process, as my_module:SPEC'),
    (('no_such_process',), 'no_such_process'),
    (('server_only',), "process='server_only' trains no client"),
    (('fedavg', '--aggregators=means'), 'did you mean mean?'),
    (('fedavg', '--faults=nan,x'), '--faults=x is not known: --list names'),
    (('fedavg', '--output=x.txt'), '--output=x.txt must end in .csv or .md'),
    (('fedavg', '--output=no/x.md'), 'there is no folder no to write to'),
    (('fedavg', '--output=README.csv'), 'holds another table'),
    (('fedavg', '--output=empty.csv'), 'holds another table'),
  ],
)
def test_refusals(arguments, message, capsys, monkeypatch, tmp_path):
  def refuse(*unused):
    raise AssertionError('A context was installed.')

  monkeypatch.setattr(contexts, 'install_context', refuse)
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'README.csv').write_text('a,b\n1,2\n')
  (tmp_path / 'empty.csv').touch()
  with pytest.raises(SystemExit) as stopped:
    main(*arguments)
  assert stopped.value.code == 2
  assert message in capsys.readouterr().err


def test_a_broken_promise_is_the_exit_code(monkeypatch, capsys):
  monkeypatch.setattr(contexts, 'install_context', lambda: None)
  outcomes = iter(['kept', 'BROKEN', 'refused', 'no promise'])

  def measure(problem, aggregator, names):
    yield dataclasses.replace(ROW, aggregator=aggregator, ended=next(outcomes))

  monkeypatch.setattr(faults, 'measure', measure)
  codes = [main('fedavg', '--aggregators=mean') for _ in range(4)]
  assert codes == [0, 1, 0, 0]


def test_list(capsys):
  assert main('--list') == 0
  words = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
  assert words > {*FAULTS, 'median', 'secure_dp'}
