"""Runs on files whose test examples have owners: figures, and resumption."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import run_folders

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
    client_ids=np.array(owners),
  )


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('data')
  write_split(folder / 'train.npz', WRITERS * 12, 0)
  write_split(folder / 'test.npz', [*WRITERS * 3, *WRITERS[:4]], 1)
  return folder


@pytest.fixture(scope='module')
def flags(data_dir, tmp_path_factory):
  cache = f'--cache_dir={tmp_path_factory.mktemp("cache")}'
  return (*RUN, f'--data_dir={data_dir}', cache)


@pytest.fixture(scope='module')
def whole(flags, tmp_path_factory):
  folder = tmp_path_factory.mktemp('whole') / 'run'
  run_folders.train(folder, *flags)
  return folder


@pytest.mark.runs
def test_tables_and_summary_agree(whole):
  metrics = run_folders.metrics_of(whole).set_index('round')
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
  summary = run_folders.summary_of(whole)
  last = metrics.loc[ROUNDS]
  for name in last.index[last.index.str.match('client_acc|unseen')]:
    assert summary[name] == pytest.approx(last[name])
  assert summary['client_test_examples'] == own
  assert summary['unseen_test_examples'] == 22 - own
  assert 'held_out_accuracy' not in summary


@pytest.mark.runs
def test_resumed_run_makes_the_same_rows_once(whole, flags, tmp_path):
  """Killed after the rows of the last round, with its checkpoint lost."""
  folder = tmp_path / 'run'
  shutil.copytree(whole, folder)
  shutil.rmtree(folder / 'checkpoints' / f'round_{ROUNDS:08d}')
  with (folder / 'clients.csv').open('a') as table:
    table.write(f'{ROUNDS + 1},0,f3,3,0.3')
  run_folders.train(folder, *flags)
  expected = (whole / 'clients.csv').read_bytes()
  assert (folder / 'clients.csv').read_bytes() == expected
  run_folders.assert_same_metrics(folder, whole)


@pytest.mark.runs
def test_lost_table_is_not_passed_over(whole, flags, tmp_path, error_of):
  folder = tmp_path / 'run'
  shutil.copytree(whole, folder)
  (folder / 'clients.csv').unlink()
  error = error_of(run.main, *flags, f'--run_dir={folder}', code=1)
  assert 'clients.csv does not hold' in error


@pytest.mark.runs
def test_off_leaves_no_table(flags, tmp_path):
  off = ('--rounds_per_client_evaluation=0', '--total_rounds=1')
  summary = run_folders.train(tmp_path, *flags, *off)
  assert not (tmp_path / 'clients.csv').exists()
  assert not [name for name in summary if re.match('client_acc|unseen', name)]
