"""Whole runs with the options of the authors' code and with dealt labels."""

import json

import pandas as pd
import pytest

from experiments import run

pytestmark = pytest.mark.runs

SMALL = (
  '--dataset=digits',
  '--model=dense',
  '--num_clients=6',
  '--clients_per_round=4',
  '--threshold=0.5',
  '--batch_size=10',
)
AS_CODED = (
  '--process=grouping',
  '--server_examples=50',
  '--server_warmup_rounds=0',
  '--start_model=slot',
  '--client_momentum=slot',
  '--server_replicas=per_group',
  '--bn_statistics=local',
  '--views_forward=joint',
  '--norm=batch',
)
DIVERSITY = (
  '--gradient_diversity_clients=6',
  '--rounds_per_gradient_diversity=2',
)
DEALT = ('--process=grouping_client_labels', '--labelled_examples=300')
UNEQUAL_COLUMNS = ['seconds', 'python_mib', 'worker_mib']


def train(folder, *arguments):
  assert run.main(['run', *SMALL, *arguments, f'--run_dir={folder}']) == 0
  summary = json.loads((folder / 'summary.json').read_text())
  return summary, pd.read_csv(folder / 'metrics.csv')


@pytest.fixture(scope='module')
def as_coded(cache, tmp_path_factory, tff_context):
  """A run with the authors' options: folder, summary and rows."""
  folder = tmp_path_factory.mktemp('as_coded') / 'run'
  arguments = (cache, *AS_CODED, *DIVERSITY, '--total_rounds=4')
  return folder, *train(folder, *arguments)


def test_the_authors_options_resume_bit_for_bit(as_coded, cache, copy_cut_off):
  """Measuring on its way changes nothing of a run, nor does its end."""
  folder, whole, table = as_coded
  cut = copy_cut_off(folder)
  resumed, rows = train(cut, cache, *AS_CODED, '--total_rounds=4')
  assert resumed['weights_sha256'] == whole['weights_sha256']
  same = [
    name
    for name in table
    if name not in UNEQUAL_COLUMNS and not name.startswith('diversity/')
  ]
  pd.testing.assert_frame_equal(rows[same], table[same])


def test_gradient_diversity_is_measured_when_asked(as_coded):
  _, _, table = as_coded
  measured = table.filter(like='diversity/')
  # 16 variants, two of the authors' code, and the number of clients.
  assert measured.shape[1] == 19
  filled = [False, True, False, True]
  assert measured.notna().all(axis=1).tolist() == filled
  assert measured[filled].notna().all(axis=None)
  assert measured['diversity/num_clients'][filled].tolist() == [6, 6]
  # Cauchy-Schwarz: never below 1/n, with or without the server.
  assert (measured['diversity/update_l2_squared'].dropna() > 1 / 6.001).all()


def test_clients_learn_from_the_labels_dealt_to_them(
  cache, tmp_path, tff_context
):
  summary, table = train(
    tmp_path / 'run', cache, *DEALT, '--total_rounds=20', '--num_groups=2'
  )
  assert summary['labelled_client_examples'] == 300
  assert summary['server_examples'] == 0
  assert summary['accuracy'] > 0.7
  assert {'train_accuracy', 'unlabelled_loss', 'mask_rate'} <= set(table)
