"""Whole runs of FedMatch, whose clients read each other's models."""

import shutil

import pytest
import run_folders

from experiments import run
from tff_ssl import models

pytestmark = pytest.mark.runs

FLAGS = (
  '--process=fedmatch',
  *run_folders.SMALL,
  '--batch_size=20',
  '--helper_interval=2',
  '--threshold=0.2',
  '--total_rounds=7',
)


def test_a_run_goes_on_with_its_helpers(
  tmp_path, cache, tff_context, copy_cut_off, capfd
):
  whole = tmp_path / 'whole'
  summary = run_folders.train(whole, *FLAGS, cache)
  table = run_folders.metrics_of(whole)
  # Chosen before the rounds 2, 4 and 6, where anybody is known.
  assert table['helpers'].iloc[0] == 0 and table['helpers'].iloc[-1] == 2
  assert table['mask_rate'].iloc[-1] > 0
  # Down: sigma and psi, two helpers, who they are, and a few numbers; up: sigma
  # and psi, the outputs on the noise, and a few numbers.
  weights = models.build('dense', (8, 8, 1), 10, 'none').initial_weights(0)
  model = sum(weight.nbytes for weight in weights.trainable)
  assert 4 * model < summary['bytes_down_per_client'] < 4 * model + 400
  assert 2 * model < summary['bytes_up_per_client'] < 2 * model + 800

  cut = copy_cut_off(whole)
  # Without the helpers' models it would be another run.
  states = cut / 'client_states'
  shutil.move(states, tmp_path / 'states')
  assert run.main(['run', *FLAGS, cache, f'--run_dir={cut}']) == 1
  assert '.state is missing' in capfd.readouterr().err

  shutil.rmtree(states, ignore_errors=True)
  shutil.move(tmp_path / 'states', states)
  resumed = run_folders.train(cut, *FLAGS, cache)
  assert resumed['weights_sha256'] == summary['weights_sha256']
