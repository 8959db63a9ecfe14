"""Runs whose clients' model deltas meet in another way than a plain mean."""

import numpy as np
import pytest
import run_folders

import tff_ssl
from experiments import run
from tff_ssl.aggregators.recommended import AGGREGATORS

pytestmark = pytest.mark.runs


def test_private_secure_sums_within_groups_and_resumed(tmp_path, cache, capsys):
  flags = (
    *('--process=grouping', '--dataset=digits', '--clients_per_round=10'),
    *('--aggregator=secure_dp', '--noise_multiplier=0.5', '--clip_norm=0.5'),
    *('--server_warmup_rounds=1', '--rounds_per_evaluation=1', cache),
  )
  run_folders.train(tmp_path, *flags, '--total_rounds=2')
  # The state names the mechanism, which a checkpoint has to keep.
  summary = run_folders.train(tmp_path, *flags, '--total_rounds=4')
  said = capsys.readouterr().out
  assert 'Resuming after round 2' in said
  table = run_folders.metrics_of(tmp_path)
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
  assert summary['flags']['client_metrics'] == 'secure'
  assert summary['epsilon'] == expected[-1]
  assert f'of clients: epsilon {expected[-1]:.3g} at delta 0.037' in said
  assert summary['delta'] == 20**-1.1
  assert 'Not covered: metrics and counts' in summary['privacy']


def test_an_aggregator_that_a_process_cannot_take_is_named(
  tmp_path, cache, error_of
):
  error = error_of(
    run.main,
    *('--process=scaffold', '--dataset=digits', '--aggregator=secure'),
    *(f'--run_dir={tmp_path / "run"}', cache),
  )
  assert '--aggregator=secure: ' in error
  assert 'would be summed in the clear' in error


_OF = {
  'dp': ('--noise_multiplier=0.1',),
  'secure': ('--min_group_size=2',),
  'secure_dp': (
    *('--noise_multiplier=0.1', '--clip_norm=0.5'),
    '--min_group_size=2',
  ),
}


@pytest.mark.parametrize('name', AGGREGATORS)
def test_rounds_without_clients_and_with_drop_outs(name, cache, tmp_path):
  """Some draws find nobody, others lose all; the run is resumed among them."""
  arguments = (
    *('--process=fedavg', *run_folders.SMALL[:2], '--num_clients=12'),
    *('--clients_per_round=2', '--client_sampling=poisson', '--drop_out=0.4'),
    *(f'--aggregator={name}', *_OF.get(name, ()), '--seed=3', cache),
    '--rounds_per_evaluation=1',
  )
  whole = tmp_path / 'whole'
  summary = run_folders.train(whole, *arguments, '--total_rounds=12')
  table = run_folders.metrics_of(whole)
  took_part = table['clients_participating']
  # Rounds of nobody, in the middle of others.
  assert (took_part[2:9] == 0).any() and (took_part[9:] > 0).any()
  assert (table['update_non_finite'] == 0).all()
  assert np.isfinite(table['test_loss']).all()
  assert summary['accuracy'] > 0.3
  parts = tmp_path / 'parts'
  run_folders.train(parts, *arguments, '--total_rounds=6')
  resumed = run_folders.train(parts, *arguments, '--total_rounds=12')
  if AGGREGATORS[name].is_private:  # Its noise has no seed.
    account = tff_ssl.PrivacyAccount(
      noise_multiplier=0.1,
      clients_per_round=2,
      num_clients=12,
      sampling='poisson',
    )
    assert resumed['epsilon'] == summary['epsilon'] == account.epsilon(12)
    return
  assert resumed['weights_sha256'] == summary['weights_sha256']
