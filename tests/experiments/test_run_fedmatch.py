"""Whole runs of FedMatch, whose clients read each other's models."""

import json
import shutil

import pandas as pd
import pytest

from experiments import run
from tff_ssl import models

pytestmark = pytest.mark.runs

FLAGS = (
  '--process=fedmatch',
  '--dataset=digits',
  '--model=dense',
  '--num_clients=6',
  '--clients_per_round=4',
  '--batch_size=20',
  '--helper_interval=2',
  '--threshold=0.2',
  '--total_rounds=7',
)


def test_a_run_goes_on_with_its_helpers(
  tmp_path, tff_context, copy_cut_off, capfd
):
  def train(name):
    folder = tmp_path / name
    cache = f'--cache_dir={tmp_path / "cache"}'
    return run.main(['run', *FLAGS, cache, f'--run_dir={folder}'])

  def summary(name):
    return json.loads((tmp_path / name / 'summary.json').read_text())

  assert train('whole') == 0
  table = pd.read_csv(tmp_path / 'whole' / 'metrics.csv')
  # Chosen before the rounds 2, 4 and 6, where anybody is known.
  assert table['helpers'].iloc[0] == 0 and table['helpers'].iloc[-1] == 2
  assert table['mask_rate'].iloc[-1] > 0
  # Down: sigma and psi, two helpers, who they are, and a few numbers; up: sigma
  # and psi, the outputs on the noise, and a few numbers.
  messages = summary('whole')
  weights = models.build('dense', (8, 8, 1), 10, 'none').initial_weights(0)
  model = sum(weight.nbytes for weight in weights.trainable)
  assert 4 * model < messages['bytes_down_per_client'] < 4 * model + 400
  assert 2 * model < messages['bytes_up_per_client'] < 2 * model + 800

  copy_cut_off(tmp_path / 'whole')
  # Without the helpers' models it would be another run.
  states = tmp_path / 'cut' / 'client_states'
  shutil.move(states, tmp_path / 'states')
  assert train('cut') == 1
  assert '.state is missing' in capfd.readouterr().err

  shutil.rmtree(states, ignore_errors=True)
  shutil.move(tmp_path / 'states', states)
  assert train('cut') == 0
  assert summary('cut')['weights_sha256'] == summary('whole')['weights_sha256']
