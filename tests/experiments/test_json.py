"""What `--json` prints is what docs/reference/json.md says."""

import collections
import contextlib
import json
import pathlib
import re

import numpy as np
import pytest
import pythons
import run_folders

from experiments import check_data, predict, report, reproduce, run
from experiments.running import calibration
from tff_ssl import doctor

_PAGE = pathlib.Path(__file__).parents[2] / 'docs/reference/json.md'
_TYPES = {
  'boolean': bool,
  'integer': int,
  'list': list,
  'null': type(None),
  'number': (float, int),
  'object': dict,
  'text': str,
}
_RUN = 'experiments.run'


def documented(command):
  """The types of the fields of a command, and the fields that always are."""
  text = _PAGE.read_text()
  (section,) = re.findall(
    rf'^## {re.escape(command)}\n(.*?)(?=^## |\Z)', text, re.M | re.S
  )
  types, always = {}, set()
  for names, kinds in re.findall(r'^\| (`.*?) \| (.*?) \|', section, re.M):
    for name, may_lack in re.findall(r'`([^`]+)`(\??)', names):
      types[name] = tuple(_TYPES[kind] for kind in kinds.split(' or '))
      if not may_lack:
        always.add(name)
  assert types, command
  return types, always


def fields(value, known, path=''):
  """The path of each value in an object as the page writes it, with the value.

  What is inside a value is asked for where the page has fields of it.
  """
  for name, inner in value.items():
    own = f'{path}{name}'
    for pattern in known:
      if re.fullmatch(re.escape(pattern).replace(r'\*', '[^.]*'), own):
        own = pattern
    yield own, inner
    beginning = f'{own}[].' if isinstance(inner, list) else f'{own}.'
    if any(each.startswith(beginning) for each in known):
      for each in inner if isinstance(inner, list) else [inner]:
        if isinstance(each, dict):
          yield from fields(each, known, beginning)


def check(document, command, beside=()):
  """Asserts that a document has the fields of a command, with their types.

  Args:
    document: As it was parsed.
    command: A heading of the page.
    beside: Fields of another command that are allowed, too.
  """
  types, always = documented(command)
  seen = collections.defaultdict(list)
  for name, value in fields(document, types):
    seen[name].append(value)
  assert not seen.keys() - types.keys() - {*beside}
  for name, kinds in types.items():
    for value in seen[name]:
      assert isinstance(value, kinds), (name, value)
      assert (type(value) is bool) <= (bool in kinds), (name, value)
    # What an empty list would hold is not there.
    inside = name.rpartition('[]')[0]
    assert seen[name] or name not in always or inside and not any(seen[inside])


def printed(main, capsys, *arguments, exit_code=0):
  """The document that a command prints."""
  capsys.readouterr()
  assert main(['x', *map(str, arguments), '--json']) == exit_code
  return json.loads(capsys.readouterr().out)


SMALL = (
  *('--dataset=digits', '--model=dense', '--num_clients=6'),
  *('--clients_per_round=4', '--total_rounds=2', '--rounds_per_evaluation=1'),
)
DP = ('--aggregator=dp', '--clip_norm=1', '--noise_multiplier=0.3')


@pytest.fixture(scope='module')
def where(tmp_path_factory):
  return tmp_path_factory.mktemp('runs')


@pytest.fixture(scope='module')
def finished(where, cache):
  """A finished run, and the document that it has printed."""
  from io import StringIO

  with contextlib.redirect_stdout(StringIO()) as out:
    arguments = (*SMALL, '--process=fedavg', f'--run_dir={where}/a', cache)
    assert run.main(['run', *arguments, '--json']) == 0
  return where / 'a', json.loads(out.getvalue())


@pytest.mark.dear
def test_a_run(finished):
  folder, document = finished
  check(document, _RUN)
  own = run_folders.summary_of(folder)
  own.pop('sha256')  # Of the file itself.
  assert document == {'run_dir': str(folder), **own}


@pytest.mark.runs
@pytest.mark.parametrize(
  'arguments',
  [
    ['--process=fedlabel', '--split=80_5_15'],
    [
      '--process=fedul',
      '--partition=u_sets',
      '--rounds_per_client_evaluation=1',
    ],
    ['--process=grouping_robust'],
    ['--process=fedavg', *DP],
    ['--process=sspt', '--model=dense_encoder', '--pretraining_rounds=1'],
    ['--recipe=method_costs:fedmatch'],
    ['--recipe=method_costs:server_only'],
  ],
  ids=lambda arguments: arguments[0],
)
def test_runs_of_other_kinds(arguments, tmp_path, cache, capsys):
  if not arguments[0].startswith('--recipe'):
    arguments = [*SMALL, *arguments]
  arguments = [*arguments, '--total_rounds=2', f'--run_dir={tmp_path}/a', cache]
  check(printed(run.main, capsys, *arguments), _RUN)


@pytest.mark.runs
@pytest.mark.parametrize(
  'process, more', [('fedavg', []), ('grouping', ['--with_lower_bound'])]
)
def test_seeds(process, more, tmp_path, cache, capfd):
  arguments = (*SMALL, f'--process={process}', f'--run_dir={tmp_path}/a', cache)
  document = printed(run.main, capfd, *arguments, '--seeds=0,1', *more)
  check(document, f'{_RUN} --seeds')
  for each in (*document['runs'], *document.get('bounds', ())):
    check(each, _RUN)
  assert [each['seed'] for each in document['runs']] == [0, 1]
  assert ('gain' in document) == bool(more)


@pytest.mark.dear
def test_a_dry_run(tmp_path, cache, capsys):
  arguments = (*SMALL, '--process=fedavg', f'--run_dir={tmp_path}/a', cache)
  document = printed(run.main, capsys, *arguments, '--dry_run')
  of_a_run, _ = documented(_RUN)
  check(document, f'{_RUN} --dry_run', of_a_run)
  assert 0 < document['seconds_per_round'] < 60
  assert document['hours'] * 3600 >= 2 * document['seconds_per_round']
  assert not (tmp_path / 'a').exists()


@pytest.mark.runs
@pytest.mark.parametrize(
  'process, more', [('fedavg', []), ('grouping', ['--with_lower_bound'])]
)
def test_a_dry_run_of_seeds(process, more, tmp_path, cache, capsys):
  arguments = (*SMALL, f'--process={process}', f'--run_dir={tmp_path}/a', cache)
  arguments = (*arguments, '--seeds=3,5', '--dry_run', *more)
  document = printed(run.main, capsys, *arguments)
  check(document, f'{_RUN} --seeds --dry_run')
  of_a_run, _ = documented(_RUN)
  for kind, documents in document.items():
    for seed, each in zip((3, 5), documents, strict=True):
      check(each, f'{_RUN} --dry_run', of_a_run)
      assert each['flags']['seed'] == seed
      is_bound = each['flags']['process'] == 'server_only'
      assert is_bound == (kind == 'bounds')
  assert ('bounds' in document) == bool(more)
  assert not list(tmp_path.iterdir())


@pytest.mark.runs
def test_a_dry_run_that_fails_prints_no_document(
  tmp_path, cache, capsys, monkeypatch
):
  arguments = (*SMALL, '--process=fedavg', f'--run_dir={tmp_path}/a', cache)

  def measure(*_):
    raise ValueError('no round')

  monkeypatch.setattr(calibration, 'measure', measure)
  assert run.main(['run', *arguments, '--dry_run', '--json']) == 1
  out, err = capsys.readouterr()
  assert out == '' and err.endswith('error: no round\n')


def test_a_refused_run_prints_no_document(tmp_path, capsys):
  assert run.main(['run', '--process=no', '--dataset=digits', '--json']) == 2
  out, err = capsys.readouterr()
  assert out == '' and err.startswith('error: --process=no')


def test_lists_of_a_run(capsys):
  document = printed(run.main, capsys, '--list')
  check(document, f'{_RUN} --list')
  assert (
    'grouping' in document['processes'] and 'digits' in document['data_sets']
  )


@pytest.mark.dear
def test_a_report(finished, tmp_path, capsys):
  folder, own = finished
  other = run_folders.write(
    tmp_path / 'b',
    {'round': [1, 2], 'accuracy': [0.5, 0.25]},
    **{**run_folders.summary_of(folder), 'process': 'fedprox', 'files': {}},
  )
  document = printed(report.main, capsys, folder, other, '--against=fedavg')
  check(document, 'experiments.report')
  names = [each.pop('name') for each in document['runs']]
  assert names == ['fedavg', 'fedprox'] and document['runs'][0] == own
  assert [row['name'] for row in document['differences']] == ['fedprox']


def test_the_tables(capsys):
  document = printed(reproduce.main, capsys, '--list')
  check(document, 'experiments.reproduce --list')
  hours = {each['table']: each['hours'] for each in document['tables']}
  assert hours['ssfl_table2'] > 24 > hours['balanced_table4'] > 0
  assert hours['ssfl_table4'] is None


# Rows of `ssfl_table2` with stored results: clients of a round, and name.
_RAN = (
  *((47, 'fedavg'), (47, 's5'), (10, 'fedavg')),
  *((10, 's2'), (10, 's2_as_coded'), (10, 'control_s2')),
)


def test_the_rows(capsys):
  document = printed(reproduce.main, capsys, '--list', '--table=ssfl_table2')
  check(document, 'experiments.reproduce --list --table')
  hours = {row['row']: row['hours'] for row in document['rows']}
  # 6,400 rounds of 13.9 s.
  assert hours['c47_s5'] == pytest.approx(6400 * 13.92 / 3600)
  # Not run: the mean cost of a client of those that ran.
  ran = [hours[f'c{count}_{name}'] / count for count, name in _RAN]
  assert hours['c47_control_s5'] == pytest.approx(47 * sum(ran) / len(ran))


def test_the_runs_of_a_table(tmp_path, capsys):
  listed = printed(reproduce.main, capsys, '--list', '--table=ssfl_table2')
  (hours,) = [r['hours'] for r in listed['rows'] if r['row'] == 'c10_s2']
  arguments = ('--table=ssfl_table2', '--rows=c10_s2', f'--runs_dir={tmp_path}')
  document = printed(reproduce.main, capsys, *arguments, '--dry_run')
  check(document, 'experiments.reproduce --dry_run')
  assert len(document['runs']) == 3
  assert document['hours'] == pytest.approx(3 * hours)


@pytest.mark.parametrize('exit_code', [0, check_data.ODD])
def test_data_of_ones_own(exit_code, tmp_path, capsys):
  images = np.random.default_rng(1).integers(0, 256, [30, 8, 8], np.uint8)
  # Two of the training examples are odd in the test split.
  begin = 18 if exit_code else 20
  for name, part in (('train', slice(20)), ('test', slice(begin, 30))):
    labels = np.arange(30)[part] % 2
    np.savez(tmp_path / f'{name}.npz', images=images[part], labels=labels)
  more = ['--strict'] if exit_code else []
  document = printed(
    *(check_data.main, capsys, tmp_path, *more), exit_code=exit_code
  )
  check(document, 'experiments.check_data')
  assert document['splits']['train'] == {
    'examples': 20,
    'labels': {'0': 10, '1': 10},
    'unlabelled': 0,
  }


@pytest.mark.dear
def test_predictions(exported, tmp_path, capsys):
  np.save(tmp_path / 'a.npy', np.zeros([2, 4, 5, 1]))
  document = printed(predict.main, capsys, exported, tmp_path / 'a.npy')
  check(document, 'experiments.predict')
  assert [each['index'] for each in document['predictions']] == [0, 1]


def test_the_doctor():
  """Without what it computes, which takes seconds: `-S` hides all packages."""
  done = pythons.run(
    *('-S', '-m', 'tff_ssl.doctor', '--json'), cwd=_PAGE.parents[2]
  )
  document = json.loads(done.stdout)
  check(document, 'tff_ssl.doctor')
  assert document['wrong'] == 1
  wrong = [
    each for each in document['checks'] if each['status'] == doctor.WRONG
  ]
  assert [each['check'] for each in wrong] == ['packages']
