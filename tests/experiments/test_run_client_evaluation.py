"""Runs on files whose test examples have owners: figures, and resumption."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from experiments import run

ROUNDS = 5
RUN = (
  *('--process=fedavg', '--dataset=npz', '--partition=native'),
  *('--model=dense', '--clients_per_round=2', '--num_clients=4'),
  *('--rounds_per_client_evaluation=2', '--rounds_per_evaluation=3'),
  f'--total_rounds={ROUNDS}',
)
WRITERS = ['=1+1', 'f\n2', 'f3', 'f4', 'f5', 'f6']


def write_split(path, owners, seed):
  """Noise whose brightness tells the class."""
  rng = np.random.default_rng(seed)
  labels = rng.permutation(np.arange(len(owners)) % 3)
  images = rng.integers(0, 80, (len(owners), 6, 6)) + 80 * labels[:, None, None]
  np.savez(
    path,
    images=images.astype(np.uint8),
    labels=labels,
    **({} if owners[0] is None else {'client_ids': np.array(owners)}),
  )


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('data')
  write_split(folder / 'train.npz', WRITERS * 12, 0)
  write_split(folder / 'test.npz', [*WRITERS * 3, *WRITERS[:4]], 1)
  return folder


@pytest.fixture(scope='module')
def main(data_dir, tmp_path_factory):
  cache = tmp_path_factory.mktemp('cache')

  def call(folder, *more):
    flags = (f'--data_dir={data_dir}', f'--cache_dir={cache}', *more)
    return run.main(['run', *RUN, *flags, f'--run_dir={folder}'])

  return call


@pytest.fixture(scope='module')
def whole(main, tmp_path_factory):
  folder = tmp_path_factory.mktemp('whole') / 'run'
  assert main(folder) == 0
  return folder


@pytest.mark.runs
def test_tables_and_summary_agree(whole):
  metrics = pd.read_csv(whole / 'metrics.csv').set_index('round')
  clients = pd.read_csv(whole / 'clients.csv')
  split = json.loads((whole / 'split.json').read_text())
  assert split['num_clients'] == 4
  counts = clients.groupby('round').size()
  assert counts.to_dict() == {2: 4, 4: 4, 5: 4}
  assert metrics.index[metrics['accuracy'].notna()].tolist() == [2, 3, 4, 5]
  for number, rows in clients.groupby('round'):
    row, accuracy = metrics.loc[number], rows['accuracy']
    assert rows['client'].tolist() == [0, 1, 2, 3]
    assert set(rows['examples']) <= {3, 4}
    average = np.average(accuracy, weights=rows['examples'])
    for name, expected in (
      ('client_accuracy_mean', accuracy.mean()),
      ('client_accuracy_p10', np.percentile(accuracy, 10)),
      ('client_accuracy_worst', accuracy.min()),
      ('client_accuracy_per_example', average),
    ):
      assert row[name] == pytest.approx(expected), name
    own = rows['examples'].sum()
    everyone = average * own + row['unseen_accuracy'] * (22 - own)
    assert row['accuracy'] == pytest.approx(everyone / 22)
  summary = json.loads((whole / 'summary.json').read_text())
  last = metrics.loc[ROUNDS]
  for name in last.index[last.index.str.match('client_acc|unseen')]:
    assert summary[name] == pytest.approx(last[name])
  assert summary['client_test_examples'] == own
  assert summary['unseen_test_examples'] == 22 - own
  assert 'held_out_accuracy' not in summary


@pytest.mark.runs
def test_resumed_run_makes_the_same_rows_once(whole, main, tmp_path):
  """Killed after the rows of the last round, with its checkpoint lost."""
  folder = tmp_path / 'run'
  shutil.copytree(whole, folder)
  shutil.rmtree(folder / 'checkpoints' / f'round_{ROUNDS:08d}')
  with (folder / 'clients.csv').open('a') as table:
    table.write(f'{ROUNDS + 1},0,f3,3,0.3')
  assert main(folder) == 0
  expected = (whole / 'clients.csv').read_bytes()
  assert (folder / 'clients.csv').read_bytes() == expected
  unequal = ['seconds', 'python_mib', 'worker_mib']
  tables = (
    pd.read_csv(where / 'metrics.csv').drop(columns=unequal)
    for where in (folder, whole)
  )
  pd.testing.assert_frame_equal(*tables)


@pytest.mark.runs
def test_lost_table_is_not_passed_over(whole, main, tmp_path, capsys):
  folder = tmp_path / 'run'
  shutil.copytree(whole, folder)
  (folder / 'clients.csv').unlink()
  assert main(folder) == 1
  error = capsys.readouterr().err
  assert 'clients.csv does not hold' in error and error.count('\n') == 1


@pytest.mark.runs
def test_off_leaves_no_table(main, tmp_path):
  flags = ('--rounds_per_client_evaluation=0', '--total_rounds=1')
  assert main(tmp_path, *flags) == 0
  assert not (tmp_path / 'clients.csv').exists()
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert not [name for name in summary if re.match('client_acc|unseen', name)]


def test_test_examples_without_owners_are_refused(
  data_dir, main, tmp_path, capsys
):
  shutil.copy(data_dir / 'train.npz', tmp_path)
  write_split(tmp_path / 'test.npz', [None] * 6, 1)
  assert main(tmp_path / 'run', f'--data_dir={tmp_path}') == 2
  error = capsys.readouterr().err
  assert 'add client_ids to test.npz' in error and error.count('\n') == 1
