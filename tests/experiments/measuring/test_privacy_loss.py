"""What a run has spent counts every round that began, also after a kill."""

import types

import pytest

import tff_ssl
from experiments.config.command_line import UsageError
from experiments.measuring import privacy_loss
from experiments.measuring.evaluation import FinishedRound
from experiments.preparing import cohort

_ACCOUNT = tff_ssl.PrivacyAccount(
  noise_multiplier=1.0, clients_per_round=10, num_clients=1000
)


def _open(folder, rounds_done=0, target_epsilon=None):
  return privacy_loss.PrivacyLoss(
    _ACCOUNT,
    folder,
    rounds_done=rounds_done,
    first_round=2,
    target_epsilon=target_epsilon,
  )


def _settings(**given):
  values = {
    'aggregator': 'dp',
    'noise_multiplier': 1.0,
    'target_epsilon': None,
    'delta': 1e-5,
    'clip_norm': 1.0,
    'clients_per_round': 10,
    'client_sampling': 'uniform',
    'min_separation': 1,
    'total_rounds': 50,
    'server_warmup_rounds': None,
  }
  return types.SimpleNamespace(**{**values, **given})


# A round that is killed after its release is released anew.
def test_p5_a_repeated_round_counts_twice(tmp_path):
  loss = _open(tmp_path)
  for round_num in range(4):
    loss.begin(round_num, None, ['a client'])
  assert loss.facts()['epsilon'] == _ACCOUNT.epsilon(2)
  # Killed before the checkpoint of round 4: it goes on after round 3.
  loss = _open(tmp_path, rounds_done=3)
  loss.begin(3, None, ['a client'])
  # The same clients as before the kill, with noise drawn anew.
  assert loss.facts()['epsilon'] == _ACCOUNT.epsilon({1: 1, 2: 1})
  # That a Poisson draw finds nobody is an outcome, too.
  loss.begin(4, None, [])
  assert loss.facts()['epsilon'] == _ACCOUNT.epsilon({1: 2, 2: 1})
  # Other clients are drawn where too few complete a round.
  loss.begin(4, None, ['another'], attempt=1)
  assert loss.facts()['epsilon'] == _ACCOUNT.epsilon({1: 3, 2: 1})


def test_p5_a_round_that_would_pass_the_target_does_not_begin(tmp_path):
  target = _ACCOUNT.epsilon(3)
  loss = _open(tmp_path, target_epsilon=target)
  for round_num in (0, 1, 2, 3):
    loss.begin(round_num, None, ['a client'])
  # Rounds that are repeated leave room for fewer.
  loss = _open(tmp_path, rounds_done=3, target_epsilon=target)
  with pytest.raises(
    privacy_loss.EpsilonReachedError,
    match=rf'before round 4, .* above --target_epsilon={target:.6g}',
  ):
    loss.begin(3, None, ['a client'])
  # It has released nothing: another one counts from where it was.
  spent = _open(tmp_path, rounds_done=3).facts()['epsilon']
  assert spent == _ACCOUNT.epsilon(2) <= target


def test_epsilon_stands_beside_an_accuracy(tmp_path):
  loss = _open(tmp_path)
  loss.begin(2, None, ['a client'])
  plain = FinishedRound(3, None, None, {})
  assert loss.measure(plain) == {}
  evaluated = FinishedRound(3, None, None, {'accuracy': 0.5})
  assert loss.measure(evaluated) == {'epsilon': _ACCOUNT.epsilon(1)}


def test_a_ledger_of_another_run_is_refused(tmp_path):
  with pytest.raises(ValueError, match='0 released rounds, but rounds_done'):
    _open(tmp_path, rounds_done=5)


@pytest.mark.parametrize(
  ('given', 'sampling'),
  [
    ({}, 'fixed'),
    ({'client_sampling': 'poisson'}, 'poisson'),
    ({'min_separation': 5}, 'none'),
  ],
)
def test_the_sampling_is_that_of_the_run(given, sampling):
  account = cohort.account(_settings(**given), 1000)
  assert account.sampling == sampling
  assert cohort.account(_settings(aggregator='clip'), 1000) is None


@pytest.mark.parts
def test_the_noise_for_an_epsilon_counts_rounds_of_clients():
  unknown = {'noise_multiplier': None, 'target_epsilon': 4.0}
  settings = _settings(**unknown, server_warmup_rounds=10)
  fitted = cohort.fit_noise(settings, 1000)
  epsilon = cohort.account(fitted, 1000).epsilon(40)
  assert 4.0 * 0.999 < epsilon <= 4.0


def test_an_epsilon_that_an_adaptive_norm_cannot_reach_is_refused():
  unknown = {'noise_multiplier': None, 'target_epsilon': 0.5}
  settings = _settings(**unknown, clip_norm=None)
  with pytest.raises(
    UsageError, match='--target_epsilon=0.5: --clients_per_round=10 must'
  ):
    cohort.fit_noise(settings, 20)
