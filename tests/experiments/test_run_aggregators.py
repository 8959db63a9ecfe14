"""Runs whose clients' model deltas meet in another way than a plain mean."""

import json

import numpy as np
import pandas as pd
import pytest

import tff_ssl
from experiments import run
from experiments.parts.aggregators import AGGREGATORS

pytestmark = pytest.mark.runs


def test_private_secure_sums_within_groups_and_resumed(tmp_path, capsys):
  folder = tmp_path / 'run'

  def go(rounds):
    return run.main(
      [
        'run',
        *('--process=grouping', '--dataset=digits', '--clients_per_round=10'),
        *(
          '--aggregator=secure_dp',
          '--noise_multiplier=0.5',
          '--clip_norm=0.5',
        ),
        *('--server_warmup_rounds=1', '--rounds_per_evaluation=1'),
        *(f'--total_rounds={rounds}', f'--run_dir={folder}'),
        f'--cache_dir={tmp_path}',
      ]
    )

  assert go(2) == 0
  # The state names the mechanism, which a checkpoint has to keep.
  assert go(4) == 0
  said = capsys.readouterr().out
  assert 'Resuming after round 2' in said
  table = pd.read_csv(folder / 'metrics.csv')
  assert list(table['round']) == [1, 2, 3, 4]
  # In the warm-up nobody takes part, and nothing is spent.
  assert list(table['clients_participating']) == [0, 10, 10, 10]
  # Their metrics lie far within the bounds of secure sums.
  assert list(table['metrics_clipped']) == [0] * 4
  account = tff_ssl.PrivacyAccount(
    noise_multiplier=0.5, clients_per_round=10, num_clients=20
  )
  expected = [account.epsilon(rounds) for rounds in range(4)]
  np.testing.assert_allclose(table['epsilon'], expected, rtol=1e-6)
  summary = json.loads((folder / 'summary.json').read_text())
  assert summary['flags']['client_metrics'] == 'secure'
  assert summary['epsilon'] == expected[-1]
  assert f'of clients: epsilon {expected[-1]:.3g} at delta 0.037' in said
  assert summary['delta'] == 20**-1.1
  assert 'Not covered: metrics and counts' in summary['privacy']


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


@pytest.mark.parametrize('name', sorted(set(AGGREGATORS) - {'mean'}))
def test_a_run_without_groups(name, tmp_path, tff_context):
  """What aggregators measure, or do not, must fit into metrics.csv."""
  noise = ('--noise_multiplier=0.5',) if name.endswith('dp') else ()
  bound = ('--clip_norm=1',) if name == 'secure_dp' else ()
  arguments = (
    '--process=fedavg',
    '--dataset=digits',
    '--model=dense',
    '--local_steps=1',
    '--total_rounds=1',
    f'--aggregator={name}',
    f'--run_dir={tmp_path / "run"}',
    f'--cache_dir={tmp_path / "cache"}',
    *noise,
    *bound,
  )
  assert run.main(['run', *arguments]) == 0
  table = pd.read_csv(tmp_path / 'run' / 'metrics.csv')
  assert list(table['clients_participating']) == [10]
