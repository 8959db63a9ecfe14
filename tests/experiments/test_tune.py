"""Values are chosen by validation accuracy, and reproduce takes them."""

import pathlib

import pandas as pd
import pytest
import run_folders

from experiments import reproduce, tune
from experiments.config import flags
from experiments.tables import child_runs, recipes, tuning

COMMON = (
  '--dataset=digits --split=80_5_15 --model=dense --num_clients=6 '
  '--clients_per_round=4 --rounds_per_evaluation=1 --total_rounds=4'
)
TABLE = f"""row,flags,published,source,seeds,note
sup,--process=fedavg {COMMON} --learning_rate=0.02,0.5,Table 1,"0,1",
semi,--process=fedlabel {COMMON} --learning_rate=0.02,,,0,
"""
VALUES = ('0.01', '0.1')


@pytest.fixture
def table(tmp_path):
  path = tmp_path / 'tiny.csv'
  path.write_text(TABLE)
  return str(path)


def planned(table, tmp_path, values=VALUES, **arguments):
  """The runs of one fold, by row and value."""
  runs_dir = str(tmp_path / 'runs')
  found = tune.plan(
    table, 'learning_rate', values, runs_dir=runs_dir, **arguments
  )
  return {key: run for key, (run,) in found.items()}


def alone(runs):
  return {key: (run,) for key, run in runs.items()}


def test_each_row_runs_with_each_value_at_seed_0(table, tmp_path):
  runs = planned(table, tmp_path, rounds=2)
  assert list(runs) == [(row, v) for row in ('sup', 'semi') for v in VALUES]
  assert len({run.name for run in runs.values()}) == 4
  assert len({run.settings.run_dir for run in runs.values()}) == 4
  for (_, value), run in runs.items():
    made = run.settings
    assert (made.seed, made.total_rounds) == (0, 2)
    assert made.learning_rate == float(value)
    # What the server optimizer and the recipe's row say stays in step.
    assert set(recipes.changes(made)) == {'learning_rate'}
  name = pathlib.Path(runs['sup', '0.1'].settings.run_dir).name
  assert name == 'sup_learning_rate=0.1_scale0.5_seed0'


def test_a_setting_of_an_own_process_is_chosen(tmp_path, capsys):
  """Not of the other row, whose process does not have it."""
  process = '--process=examples.own_algorithm:SPEC'
  path = tmp_path / 'own.csv'
  path.write_text(TABLE.replace('--process=fedlabel', process))
  where = str(tmp_path / 'runs')
  arguments = (
    *('tune', f'--table={path}', '--flag=sent_share', '--values=0.25,0.5'),
    f'--runs_dir={where}',
  )
  runs = tune.plan(
    str(path), 'sent_share', ('0.25', '0.5'), rows=('semi',), runs_dir=where
  )
  assert [run.settings.sent_share for (run,) in runs.values()] == [0.25, 0.5]
  for share, (run,) in zip((0.25, 0.5), runs.values(), strict=True):
    run_folders.write_finished(run.settings, validation_accuracy=share)
  assert tune.main([*arguments, '--rows=semi']) == 0
  chosen = tmp_path / 'runs' / 'own_sent_share.csv'
  known = recipes.load(str(path))
  assert tuning.read(chosen, known, ('semi',)) == {'semi': {'sent_share': 0.5}}
  # Again, with its own table to read first.
  assert tune.main([*arguments, '--rows=semi']) == 0
  capsys.readouterr()
  assert tune.main([*arguments, '--rows=sup']) == 2
  assert '--sent_share is no flag' in capsys.readouterr().err


def test_the_highest_validation_accuracy_is_chosen(table, tmp_path, capsys):
  runs = planned(table, tmp_path)
  accuracies = {'sup': (0.25, 0.5), 'semi': (0.75, 0.12504)}
  for (row, value), run in runs.items():
    accuracy = accuracies[row][VALUES.index(value)]
    # The test accuracy says the opposite, and must not choose.
    run_folders.write_finished(
      run.settings, validation_accuracy=accuracy, accuracy=1 - accuracy
    )
  argv = [
    *('tune', f'--table={table}', '--flag=learning_rate'),
    *(f'--values={",".join(VALUES)}', f'--runs_dir={tmp_path / "runs"}'),
  ]
  assert tune.main(argv) == 0
  out = capsys.readouterr().out
  assert '4/4 were done before.' in out
  stem = tmp_path / 'runs' / 'tiny_learning_rate'
  written = pd.read_csv(f'{stem}.csv', dtype=str)
  assert written.to_dict('records') == [
    {
      'row': 'sup',
      'flag': 'learning_rate',
      'chosen': '0.1',
      '0.01': '0.25',
      '0.1': '0.5',
    },
    {
      'row': 'semi',
      'flag': 'learning_rate',
      'chosen': '0.01',
      '0.01': '0.75',
      '0.1': '0.12504',
    },
  ]
  lines = pathlib.Path(f'{stem}.md').read_text().splitlines()
  cells = [line.strip('|').split('|') for line in lines if '|' in line]
  assert [[c.strip() for c in row] for row in (cells[0], *cells[2:])] == [
    ['row', 'flag', 'chosen', '0.01', '0.1'],
    ['sup', 'learning_rate', '0.1', '0.25', '0.5'],
    ['semi', 'learning_rate', '0.01', '0.75', '0.125'],  # Rounded.
  ]
  assert lines[-3:] == [
    'Commands:',
    '',
    f'    python -m experiments.tune --table={table} --flag=learning_rate '
    '--values=0.01,0.1 --rows=sup,semi',
  ]
  assert '\n'.join(lines[2:-4]) in out

  chosen = tuning.read(f'{stem}.csv', rows=('semi', 'sup'))
  assert chosen == {
    'semi': {'learning_rate': 0.01},
    'sup': {'learning_rate': 0.1},
  }
  plan = reproduce.plan(table, runs_dir=str(tmp_path / 'runs'), changed=chosen)
  rates = {
    (recipe.row, run.settings.seed): run.settings.learning_rate
    for recipe, run in plan
  }
  assert rates == {('sup', 0): 0.1, ('semi', 0): 0.01, ('sup', 1): 0.1}
  # Seed 0 of the full length is the run that was made to choose.
  assert [child_runs.is_finished(run.settings) for _, run in plan] == [
    *(True, True, False),
  ]


def test_rows_that_were_chosen_for_before_stay(table, tmp_path, capsys):
  for row, values in (('sup', VALUES), ('semi', ('0.1', '0.5'))):
    runs = planned(table, tmp_path, values, rows=(row,))
    for (_, value), run in runs.items():
      run_folders.write_finished(run.settings, validation_accuracy=float(value))
    argv = [
      *('tune', f'--table={table}', '--flag=learning_rate', f'--rows={row}'),
      *(f'--values={",".join(values)}', f'--runs_dir={tmp_path / "runs"}'),
    ]
    # Twice: a row is not in the table twice.
    assert tune.main(argv) == tune.main(argv) == 0
  path = tmp_path / 'runs' / 'tiny_learning_rate.csv'
  assert path.read_text().splitlines() == [
    'row,flag,chosen,0.01,0.1,0.5',
    'sup,learning_rate,0.1,0.01,0.1,',
    'semi,learning_rate,0.5,,0.1,0.5',
  ]
  assert tuning.read(path, rows=('sup', 'semi')) == {
    'sup': {'learning_rate': 0.1},
    'semi': {'learning_rate': 0.5},
  }
  # Each row with the values that were tried with it.
  commands = path.with_suffix('.md').read_text().splitlines()
  start = f'    python -m experiments.tune --table={table} --flag=learning_rate'
  assert [line for line in commands if line.startswith('    ')] == [
    f'{start} --values=0.01,0.1 --rows=sup',
    f'{start} --values=0.1,0.5 --rows=semi',
  ]
  path.write_text('a,b\n1,2\n')
  assert tune.main(argv) == 2
  assert path.read_text() == 'a,b\n1,2\n'


@pytest.mark.filterwarnings('error')
def test_rows_without_a_finished_run_join_others(table, tmp_path):
  path = tmp_path / 'tuned.csv'
  runs = planned(table, tmp_path)
  run_folders.write_finished(
    runs['sup', '0.1'].settings, validation_accuracy=0.5
  )
  both = tuning.choose('learning_rate', alone(runs))
  both[both['row'] == 'semi'].to_csv(path, index=False)
  tuning.add_to(path, both[both['row'] == 'sup']).to_csv(path, index=False)
  assert path.read_text().splitlines() == [
    'row,flag,chosen,0.01,0.1',
    'semi,learning_rate,,,',
    'sup,learning_rate,0.1,,0.5',
  ]


def test_of_equal_values_the_first_and_of_none_nothing(table, tmp_path):
  runs = planned(table, tmp_path)
  for value in VALUES:
    run_folders.write_finished(
      runs['sup', value].settings, validation_accuracy=0.5
    )
  found = tuning.choose('learning_rate', alone(runs))
  path = tmp_path / 'tuned.csv'
  found.to_csv(path, index=False)
  assert tuning.read(path) == {'sup': {'learning_rate': 0.01}}
  with pytest.raises(flags.UsageError, match='chosen nothing for semi: run'):
    tuning.read(path, rows=('sup', 'semi'))


def test_runs_without_a_validation_split_are_refused(table, tmp_path):
  runs = planned(table, tmp_path)
  run_folders.write_finished(runs['sup', '0.1'].settings, accuracy=0.5)
  with pytest.raises(flags.UsageError, match='no validation accuracy .*split'):
    tuning.choose('learning_rate', alone(runs))


def test_folds_of_the_labels_choose(tmp_path, capsys):
  """The mean over the folds, where all of them are finished."""
  path = tmp_path / 'few.csv'
  path.write_text(TABLE.replace('--split=80_5_15 ', ''))
  argv = [
    *('tune', f'--table={path}', '--flag=learning_rate', '--folds=2'),
    *('--values=0.01,0.1,0.5', '--rows=sup', f'--runs_dir={tmp_path / "runs"}'),
  ]
  runs = tune.plan(
    str(path),
    'learning_rate',
    ('0.01', '0.1', '0.5'),
    rows=('sup',),
    folds=2,
    runs_dir=str(tmp_path / 'runs'),
  )
  accuracies = {'0.01': (0.5, 0.25), '0.1': (0.75, 0.125), '0.5': (0.875, None)}
  for (_, value), folds in runs.items():
    assert [run.settings.label_fold for run in folds] == ['1of2', '2of2']
    assert len({run.settings.run_dir for run in folds}) == 2
    for run, accuracy in zip(folds, accuracies[value], strict=True):
      if accuracy is not None:
        run_folders.write_finished(
          run.settings, validation_accuracy=accuracy, validation_examples=2000
        )
  found = tuning.choose('learning_rate', runs)
  assert found.to_dict('records') == [
    {
      'row': 'sup',
      'flag': 'learning_rate',
      'chosen': '0.1',
      '0.01': 0.375,
      '0.1': 0.4375,
      '0.5': None,
    }
  ]
  run_folders.write_finished(
    runs['sup', '0.5'][1].settings,
    validation_accuracy=0.125,
    validation_examples=2000,
  )
  assert tune.main(argv) == 0
  page = tmp_path / 'runs' / 'few_learning_rate_2folds.md'
  lines = page.read_text().splitlines()
  assert 'did not train, mean of 2 folds, seed 0.' in lines[0]
  assert lines[-1].endswith('--rows=sup --folds=2')
  assert '6/6 were done before.' in capsys.readouterr().out
  chosen = tuning.read(page.with_suffix('.csv'), rows=('sup',))
  assert chosen == {'sup': {'learning_rate': 0.5}}
  # The run of the table trains on all labels.
  for _, run in reproduce.plan(str(path), rows=('sup',), changed=chosen):
    assert run.settings.label_fold is None


def chosen_by_folds(path, flag, accuracies, labels):
  """The value of the row `sup` after two folds of so many labels."""
  where = str(path.with_name('runs'))
  runs = tune.plan(
    str(path), flag, [*accuracies], rows=('sup',), folds=2, runs_dir=where
  )
  for (_, value), folds in runs.items():
    for run in folds:
      run_folders.write_finished(
        run.settings,
        validation_accuracy=accuracies[value],
        validation_examples=labels,
      )
  argv = [
    *('tune', f'--table={path}', '--rows=sup', f'--flag={flag}'),
    *(f'--values={",".join(accuracies)}', '--folds=2', f'--runs_dir={where}'),
  ]
  assert tune.main(argv) == 0
  found = tuning.read(pathlib.Path(where, f'few_{flag}_2folds.csv'))
  return found['sup'][flag]


@pytest.mark.parametrize(
  'labels, own, chosen',
  [(6, '0.02', 0.02), (7, '0.02', 0.5), (6, '0.03', 0.5)],
)
def test_few_labels_tell_no_more_than_their_standard_error(
  tmp_path, labels, own, chosen
):
  """Two folds of 6 labels with half right: an error of .1443."""
  path = tmp_path / 'few.csv'
  text = TABLE.replace('--split=80_5_15 ', '')
  path.write_text(
    text.replace('--learning_rate=0.02', f'--learning_rate={own}')
  )
  accuracies = {'0.1': 0.45, '0.5': 0.5, '0.02': 0.36}
  assert chosen_by_folds(path, 'learning_rate', accuracies, labels) == chosen


def test_a_row_that_cannot_run_without_the_flag_has_no_value_to_keep(tmp_path):
  """So much noise needs a fixed norm."""
  path = tmp_path / 'few.csv'
  noise = '--process=fedavg --aggregator=dp --noise_multiplier=1'
  text = TABLE.replace('--split=80_5_15 ', '')
  path.write_text(text.replace('--process=fedavg', noise))
  assert chosen_by_folds(path, 'clip_norm', {'1': 0.25, '2': 0.5}, 9) == 2


@pytest.mark.parametrize(
  'arguments, message',
  [
    (('--flag=learning_rate', '--values=1', '--folds=1'), '--folds=1 must be'),
    (('--flag=learning_rat', '--values=1'), '--flag=learning_rat'),
    (('--flag=run_dir', '--values=here'), '--flag=run_dir'),
    (('--flag=seed', '--values=0,1'), '--flag=seed'),
    (('--flag=learning_rate', '--values=a'), '--values=a'),
    (('--flag=learning_rate', '--values=0.1,0.10'), 'a value twice'),
    (('--flag=consistency_weight', '--values=1'), 'has no effect'),
    (('--flag=learning_rate', '--values=1', '--rounds=5'), 'at most the 4'),
    (('--flag=learning_rate', '--values=1', '--rows=sop'), "'sup'"),
  ],
)
def test_refusals_come_before_the_first_run(
  table, tmp_path, arguments, message, error_of
):
  runs = tmp_path / 'runs'
  where = (f'--table={table}', f'--runs_dir={runs}')
  assert message in error_of(tune.main, *where, *arguments)
  assert not runs.exists()


@pytest.mark.parametrize('text', ['', 'a,b\n1,2\n', 'row,flag,chosen,0.1\n'])
def test_files_that_tune_did_not_write_are_refused(
  table, tmp_path, text, error_of
):
  path = tmp_path / 'tuned.csv'
  path.write_text(text)
  error = error_of(reproduce.main, f'--table={table}', f'--tuned={path}')
  assert 'is not what experiments.tune writes' in error


@pytest.mark.runs
def test_tuned_and_reproduced(table, tmp_path, capfd):
  """Real runs: what was made to choose is not made again."""
  runs = tmp_path / 'runs'
  common = [
    *(f'--table={table}', f'--runs_dir={runs}', '--rows=semi'),
    f'--cache_dir={tmp_path / "cache"}',
  ]
  argv = ['tune', *common, '--flag=learning_rate', '--values=0.1']
  assert tune.main(argv) == 0
  folder = runs / 'tiny' / 'semi_learning_rate=0.1_seed0'
  last = run_folders.metrics_of(folder)['validation_accuracy'].iloc[-1]
  summary = run_folders.summary_of(folder)
  # 1,797 digits: 15% for the test, rounded down.
  assert summary['test_examples'] == 269
  tuned = runs / 'tiny_learning_rate.csv'
  written = pd.read_csv(tuned, dtype={'chosen': str})
  assert written['chosen'].tolist() == ['0.1']
  assert written['0.1'].tolist() == [last]
  capfd.readouterr()

  assert reproduce.main(['reproduce', *common, f'--tuned={tuned}']) == 0
  assert '1/1 were done before.' in capfd.readouterr().out
  (row,) = pd.read_csv(runs / 'tiny_tuned.csv').to_dict('records')
  assert row['mean'] == pytest.approx(summary['accuracy'], abs=6e-5)
  assert row['changed'] == 'learning_rate'
