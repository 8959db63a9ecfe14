"""A table of one's own, killed half-way, resumed and reported."""

import contextlib
import re
import statistics
import subprocess
import time
import types

import pandas as pd
import pytest
import pythons
import run_folders

from experiments import reproduce, run
from experiments.tables import child_runs, recipes

COMMON = (
  '--dataset=digits --model=dense --num_clients=6 --clients_per_round=4 '
  '--rounds_per_evaluation=3 --total_rounds=6'
)
TABLE = f"""row,flags,published,source,seeds,note
low,--process=fedavg {COMMON} --learning_rate=0.01,0.5,Table 1,"0,1",
high,--process=fedavg {COMMON} --learning_rate=0.1,,,0,
"""
READINGS = """row,flags,published,measure,source,seeds,note
three,same_as=tiny.csv:low,0.5,accuracy@2,Table 2,,
half,same_as=tiny.csv:low,7,rounds_to@0.05,Table 3,0,
"""


@pytest.fixture
def table(tmp_path):
  """A table, and beside it another that reads its runs."""
  (tmp_path / 'other.csv').write_text(READINGS)
  path = tmp_path / 'tiny.csv'
  path.write_text(TABLE)
  return path


@contextlib.contextmanager
def started(*arguments, output):
  with output.open('w') as file:
    process = pythons.start(
      *('-m', 'experiments.reproduce', *arguments),
      stdout=file,
      stderr=subprocess.STDOUT,
    )
    try:
      yield process
    finally:
      process.kill()
      process.wait()


@pytest.mark.runs
def test_killed_half_way_resumed_and_reported(
  table, tmp_path, capfd, monkeypatch
):
  runs = tmp_path / 'runs'
  arguments = (
    f'--table={table}',
    '--rows=low',
    '--scale=0.5',
    f'--runs_dir={runs}',
    f'--cache_dir={tmp_path / "cache"}',
  )
  first = runs / 'tiny' / 'low_scale0.5_seed0'
  second = runs / 'tiny' / 'low_scale0.5_seed1'
  with started(*arguments, output=tmp_path / 'out.txt') as process:
    deadline = time.monotonic() + 240
    while not (second / 'flags.txt').exists():
      assert process.poll() is None, (tmp_path / 'out.txt').read_text()
      assert time.monotonic() < deadline
      time.sleep(0.02)
    process.kill()
  before = (first / 'summary.json').stat().st_mtime_ns
  assert not (second / 'summary.json').exists()

  assert reproduce.main(['reproduce', *arguments]) == 0
  out = capfd.readouterr().out
  assert '1/2 were done before.' in out
  assert '2/2 done\n' in out
  assert (first / 'summary.json').stat().st_mtime_ns == before

  summaries = [run_folders.summary_of(folder) for folder in (first, second)]
  for seed, summary in enumerate(summaries):
    assert summary['recipe'] == f'{table}:low'
    assert (summary['seed'], summary['rounds']) == (seed, 3)
    assert (summary['recipe_rounds'], summary['recipe_changes']) == (6, [])
  # Another seed, another model.
  assert len({summary['weights_sha256'] for summary in summaries}) == 2
  accuracies = [summary['accuracy'] for summary in summaries]
  mean = statistics.mean(accuracies)
  means = [summary['mean_of_last'] for summary in summaries]
  (number,) = {summary['evaluations_in_mean'] for summary in summaries}
  (row,) = pd.read_csv(runs / 'tiny_scale0.5.csv').to_dict('records')
  assert (row['name'], row['scale'], row['n']) == ('low', 0.5, 2)
  assert row['mean'] == pytest.approx(mean, abs=6e-5)
  assert row['difference'] == pytest.approx(mean - 0.5, abs=6e-5)

  # Another table reads them, and makes none of its own.
  other = f'--table={table.with_name("other.csv")}'
  argv = ['reproduce', other, *arguments[2:], '--against=three']
  assert reproduce.main(argv) == 0
  out = capfd.readouterr().out
  assert '2/2 were done before.' in out
  assert 'No other row has data, measure and a seed of three.' in out
  assert not (runs / 'other').exists()
  rows = pd.read_csv(runs / 'other_scale0.5.csv', index_col='name')
  assert list(rows['measure']) == ['accuracy@2', 'rounds_to@0.05']
  assert list(rows['published']) == [0.5, 7]
  curve, other_curve = (
    run_folders.metrics_of(folder)['accuracy'] for folder in (first, second)
  )
  # In half of the rounds, number 1 stands for number 2.
  assert rows['mean']['three'] == pytest.approx(
    (curve[1] + other_curve[1]) / 2, abs=6e-5
  )
  # Which is why no difference to published rounds is shown.
  assert rows['difference'].notna().tolist() == [True, False]
  assert rows['mean']['half'] == curve.ge(0.05).idxmax()
  assert rows['reached']['half'] == '1 of 1'

  # Where the baseline's run fails, the report comes without it.
  with monkeypatch.context() as patched:
    failed = types.SimpleNamespace(failed=['high'], exit_code=1)
    patched.setattr(child_runs, 'run_all', lambda runs: failed)
    argv = [a for a in arguments if not a.startswith('--rows')]
    assert reproduce.main(['reproduce', *argv, '--against=high']) == 1
  assert 'No run of high is finished' in capfd.readouterr().out

  # The same runs by hand: both seeds are there already.
  one = tuple(a for a in arguments if a.startswith('--cache'))
  argv = ['run', f'--recipe={table}:low', '--recipe_scale=0.5', *one]
  monkeypatch.chdir(tmp_path)
  assert run.main([*argv, '--seeds=0,1']) == 0
  out = capfd.readouterr().out
  deviation = statistics.stdev(accuracies)
  assert out.splitlines() == [
    '2/2 were done before.',
    f'Final test accuracy, mean of the last {number} evaluations: mean '
    f'{statistics.mean(means):.4f}, standard deviation '
    f'{statistics.stdev(means):.4f}, n 2 (no interval below 3 seeds)',
    f'After the last round: mean {mean:.4f}, standard deviation '
    f'{deviation:.4f}, n 2 (no interval below 3 seeds)',
  ]


def test_plan_takes_all_rows_of_the_first_seed_first(table):
  plan = reproduce.plan(str(table))
  assert [run.name for _, run in plan] == [
    *('low, seed 0', 'high, seed 0', 'low, seed 1'),
  ]
  assert plan[1][1].settings.run_dir == 'runs/tiny/high_seed0'
  plan = reproduce.plan(
    str(table), rows=('high', 'high'), seeds=(7,), runs_dir='x'
  )
  ((recipe, run),) = plan
  assert (recipe.row, run.settings.run_dir) == ('high', 'x/tiny/high_seed7')


def test_rows_that_share_a_run_plan_it_once(table):
  plan = reproduce.plan(str(table.with_name('other.csv')), runs_dir='x')
  assert [(recipe.row, run.name) for recipe, run in plan] == [
    ('three', f'{table}:low, seed 0'),
    ('half', f'{table}:low, seed 0'),
    ('three', f'{table}:low, seed 1'),
  ]
  assert plan[0][1] is plan[1][1]
  own = reproduce.plan(str(table), rows=('low',), runs_dir='x')
  assert [run.given for _, run in own] == [plan[0][1].given, plan[2][1].given]


def test_a_process_of_ones_own_enters_a_table(tmp_path, capsys):
  own = '--process=examples.own_algorithm:SPEC'
  header = TABLE.partition('\n')[0]
  path = tmp_path / 'mine.csv'
  base = 'leaderboard_clients:texts_p10_fedavg'
  path.write_text(f'{header}\nsparse,same_as={base} {own},,,,\n')
  argv = ['--table=leaderboard_clients', f'--add_rows={path}']
  assert reproduce.main(['reproduce', '--list', *argv]) == 0
  *_, last = capsys.readouterr().out.split('Hours are')[0].splitlines()
  assert last.split()[:2] == ['sparse', '0,1,2']
  rows = ('sparse', 'texts_p10_fedavg')
  plan = reproduce.plan(
    'leaderboard_clients', add_rows=str(path), rows=rows, seeds=(1,)
  )
  ours, theirs = (run.settings.used for _, run in plan)
  differ = {k for k in ours.keys() | theirs if ours.get(k) != theirs.get(k)}
  assert {'process', 'recipe', 'run_dir', 'sent_share'} <= differ
  same = {'dataset', 'mask_ratio', 'num_clients', 'partition', 'total_rounds'}
  assert not differ & same
  assert ours['run_dir'] == 'runs/mine/sparse_seed1'


def test_list_names_every_table(capsys):
  assert reproduce.main(['reproduce', '--list']) == 0
  out = capsys.readouterr().out
  for table in recipes.tables():
    assert re.search(rf'^{table} +{len(recipes.load(table))} ', out, re.M)


@pytest.mark.parametrize(
  'table, line',
  [
    ('ssfl_table2', r'c10_s2 +0\.8443 +0,1,2 +\d+\.\d  Table 2'),
    ('label_hungry_chart3', r'\w+ +80 +0,1,2 +\S+  Chart 3, FSL-FedAvg'),
  ],
)
def test_list_names_every_row(table, line, capsys):
  assert reproduce.main(['reproduce', '--list', f'--table={table}']) == 0
  rows = capsys.readouterr().out.splitlines()
  names = [row.split()[0] for row in rows[:-3]]
  assert names == ['row', *recipes.load(table)]
  assert rows[-1].endswith('--recipe=TABLE:ROW --dry_run')
  assert any(re.match(line, row) for row in rows)


def test_what_would_run_is_listed(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  argv = ['reproduce', '--table=gain_resnet9', '--seeds=4', '--dry_run']
  assert reproduce.main(argv) == 0
  out = capsys.readouterr().out
  assert 'robust, seed 4: 0 of 40 rounds, runs/gain_resnet9/robust_seed4' in out
  assert '80 rounds are left, about 29 min. Nothing was trained' in out
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'arguments, message',
  [
    (('--table=ssfl_tabel2',), "'ssfl_table2'"),
    (('--table=native_writers', '--rows=ns50_contrl_s2'), "'ns50_control_s2'"),
    (('--table=native_writers', '--seeds=0;1'), '--seeds=0;1'),
    (('--table=native_writers', '--scale=2'), '> 0 and <= 1'),
    (('--table=native_writers', '--against=ns50_contrl'), 'ns50_control_'),
    # One row of them is bad.
    (('--table={table}',), '--norm=x'),
    ((), '--table is missing; --list names'),
  ],
)
def test_refusals_come_before_the_first_run(
  arguments, message, table, tmp_path, error_of
):
  table.write_text(TABLE + f'bad,--process=fedavg {COMMON} --norm=x,,,0,\n')
  given = [argument.format(table=table) for argument in arguments]
  runs = tmp_path / 'runs'
  assert message in error_of(reproduce.main, *given, f'--runs_dir={runs}')
  assert not runs.exists()
