"""Whole runs of processes whose clients or server keep more than a model."""

import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from experiments import run

pytestmark = pytest.mark.runs

FLAGS = (
  '--dataset=digits',
  '--model=dense',
  '--num_clients=6',
  '--clients_per_round=4',
  '--batch_size=20',
  '--labelled_fraction=0.5',
)


def train(folder, *arguments):
  assert run.main(['run', *FLAGS, *arguments, f'--run_dir={folder}']) == 0
  return json.loads((folder / 'summary.json').read_text())


def test_scaffold_goes_on_with_its_controls(
  cache, tmp_path, tff_context, copy_cut_off
):
  arguments = ('--process=scaffold', cache, '--total_rounds=5')
  whole = train(tmp_path / 'whole', *arguments)
  cut = copy_cut_off(tmp_path / 'whole')
  resumed = train(cut, *arguments)
  assert resumed['weights_sha256'] == whole['weights_sha256']
  # A model and a control each way.
  assert whole['bytes_up_per_client'] == pytest.approx(
    whole['bytes_down_per_client'], abs=200
  )


def test_the_number_of_clients_is_the_partitions(cache, tmp_path, tff_context):
  """After a round of all clients, c is the mean of what they keep."""
  folder = tmp_path / 'run'
  train(
    folder,
    *('--process=scaffold', cache),
    *('--total_rounds=1', '--clients_per_round=6'),
  )
  controls = []
  for path in (folder / 'client_states').rglob('*.state'):
    leaves = tf.io.parse_tensor(path.read_bytes(), tf.string)
    controls.append(tf.io.parse_tensor(leaves[0], tf.float32).numpy())
  assert len(controls) == 6
  mean = np.mean(controls, axis=0)
  (path,) = (folder / 'checkpoints').glob('round_*1/state.npz')
  with np.load(path) as leaves:
    found = [
      np.allclose(leaf.view(np.float32), mean, atol=1e-6)
      for leaf in leaves.values()
      if leaf.shape == mean.shape
    ]
  # The model's kernel of that shape, and the server's control.
  assert sorted(found) == [False, True]
  assert np.abs(mean).max() > 1e-4


@pytest.mark.parametrize('process', ['fedadam', 'fednova'])
def test_others_run_with_some_labels(cache, tmp_path, tff_context, process):
  summary = train(
    tmp_path / 'run', f'--process={process}', cache, '--total_rounds=2'
  )
  # Half of the 1,437.
  assert summary['labelled_client_examples'] == pytest.approx(718, abs=6)
  table = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  assert table['train_loss'].iloc[1] < table['train_loss'].iloc[0]
