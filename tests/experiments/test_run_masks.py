"""Whole runs in which clients know few of their labels."""

import json

import numpy as np
import pandas as pd
import pytest

from experiments import run

pytestmark = pytest.mark.runs

SMALL = (
  '--process=fedavg',
  '--dataset=digits',
  '--model=dense',
  '--num_clients=6',
  '--clients_per_round=6',
  '--batch_size=10',
  '--total_rounds=2',
)


def test_clients_learn_from_the_labels_left_to_them(tmp_path, tff_context):
  arguments = [
    'run',
    *SMALL,
    '--mask_ratio=0.9',
    f'--cache_dir={tmp_path / "cache"}',
    f'--run_dir={tmp_path / "run"}',
  ]
  assert run.main(arguments) == 0
  folder = tmp_path / 'run'
  summary = json.loads((folder / 'summary.json').read_text())
  with np.load(folder / 'split.npz') as split:
    sizes = np.diff(split['offsets'])
    shown = split['labelled_indices']
  labels = sum(n - int(0.9 * n) for n in sizes)
  assert summary['labelled_client_examples'] == labels == len(shown)
  assert summary['flags']['mask'] == 'fixed'
  # One pass over each client: its accuracy is a number of right answers among
  # the labels there are.
  right = pd.read_csv(folder / 'metrics.csv')['train_accuracy'] * labels
  np.testing.assert_allclose(right, right.round(), atol=1e-3)
  # The flag file resumes the run, which is complete.
  assert run.main(['run', f'--flagfile={folder / "flags.txt"}']) == 0
