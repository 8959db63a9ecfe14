"""Whole runs with the authors' options, and with few labels at clients."""

import numpy as np
import pytest
import run_folders

from experiments import run

pytestmark = pytest.mark.runs

SMALL = (*run_folders.SMALL, '--batch_size=10')
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
  '--threshold=0.5',
)
DIVERSITY = (
  '--gradient_diversity_clients=6',
  '--rounds_per_gradient_diversity=2',
)
DEALT = (
  '--process=grouping_client_labels',
  '--labelled_examples=300',
  '--threshold=0.5',
)


@pytest.fixture(scope='module')
def as_coded(cache, tmp_path_factory, tff_context):
  """A run with the authors' options: folder, summary and rows."""
  folder = tmp_path_factory.mktemp('as_coded') / 'run'
  summary = run_folders.train(
    folder, cache, *SMALL, *AS_CODED, *DIVERSITY, '--total_rounds=4'
  )
  return folder, summary, run_folders.metrics_of(folder)


def test_the_authors_options_resume_bit_for_bit(as_coded, cache, copy_cut_off):
  """Measuring on its way changes nothing of a run, nor does its end."""
  folder, whole, table = as_coded
  cut = copy_cut_off(folder)
  resumed = run_folders.train(cut, cache, *SMALL, *AS_CODED, '--total_rounds=4')
  assert resumed['weights_sha256'] == whole['weights_sha256']
  diversity = table.filter(like='diversity/')
  run_folders.assert_same_metrics(cut, folder, beside=diversity)


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
  twenty = ('--total_rounds=20', '--num_groups=2')
  summary = run_folders.train(tmp_path, cache, *SMALL, *DEALT, *twenty)
  assert summary['labelled_client_examples'] == 300
  assert summary['server_examples'] == 0
  assert summary['accuracy'] > 0.7
  names = {'train_accuracy', 'unlabelled_loss', 'mask_rate'}
  assert names <= set(run_folders.metrics_of(tmp_path))


@pytest.mark.parametrize('process', ['fedadam', 'fednova'])
def test_some_labels_are_enough(cache, tmp_path, tff_context, process):
  summary = run_folders.train(
    tmp_path,
    *(*SMALL, f'--process={process}', cache, '--total_rounds=2'),
    *('--batch_size=20', '--labelled_fraction=0.5'),
  )
  # Half of the 1,437.
  assert summary['labelled_client_examples'] == pytest.approx(718, abs=6)
  first, second = run_folders.metrics_of(tmp_path)['train_loss']
  assert second < first


def test_clients_learn_from_the_labels_left_to_them(
  tmp_path, cache, tff_context
):
  summary = run_folders.train(
    tmp_path,
    *(*SMALL, '--process=fedavg', '--clients_per_round=6', cache),
    *('--mask_ratio=0.9', '--total_rounds=2'),
  )
  with np.load(tmp_path / 'split.npz') as split:
    sizes = np.diff(split['offsets'])
    shown = split['labelled_indices']
  labels = sum(n - int(0.9 * n) for n in sizes)
  assert summary['labelled_client_examples'] == labels == len(shown)
  assert summary['flags']['mask'] == 'fixed'
  # One pass over each client: its accuracy is a number of right answers among
  # the labels there are.
  right = run_folders.metrics_of(tmp_path)['train_accuracy'] * labels
  np.testing.assert_allclose(right, right.round(), atol=1e-3)
  # The flag file resumes the run, which is complete.
  assert run.main(['run', f'--flagfile={tmp_path / "flags.txt"}']) == 0
