"""Runs whose clients' model deltas meet in another way than a plain mean."""

import json

import numpy as np
import pandas as pd
import pytest

from experiments import run


@pytest.mark.slow
def test_private_secure_sums_within_groups_and_resumed(tmp_path, capsys):
  folder = tmp_path / 'run'

  def go(rounds):
    return run.main(
      [
        'run',
        *('--process=grouping', '--dataset=digits', '--clients_per_round=10'),
        *('--aggregator=secure_dp', '--noise_multiplier=0.01', '--clip_norm=2'),
        *('--server_warmup_rounds=0', '--rounds_per_evaluation=2'),
        *(f'--total_rounds={rounds}', f'--run_dir={folder}'),
        f'--cache_dir={tmp_path}',
      ]
    )

  assert go(2) == 0
  # The state names the mechanism, which a checkpoint has to keep.
  assert go(4) == 0
  assert 'Resuming after round 2' in capsys.readouterr().out
  table = pd.read_csv(folder / 'metrics.csv')
  assert list(table['round']) == [1, 2, 3, 4]
  assert list(table['clients_participating']) == [10] * 4
  assert np.isfinite(table['mask_rate']).all()
  flags = json.loads((folder / 'summary.json').read_text())['flags']
  assert flags['client_metrics'] == 'secure'


@pytest.mark.slow
def test_an_aggregator_that_a_process_cannot_take_is_named(tmp_path, capsys):
  code = run.main(
    [
      'run',
      *('--process=scaffold', '--dataset=digits', '--aggregator=secure'),
      *(f'--run_dir={tmp_path / "run"}', f'--cache_dir={tmp_path}'),
    ]
  )
  assert code == 2
  error = capsys.readouterr().err
  assert '--aggregator=secure: ' in error
  assert 'would be summed in the clear' in error
