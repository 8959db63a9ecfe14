"""Epsilon against divergences that numpy integrates, and other accountants."""

import dataclasses
import functools
import json
import math
import pathlib
import re

import costs
import dp_accounting
import numpy as np
import pytest
import tensorflow_federated as tff
from scipy import special, stats

import tff_ssl

_ORDERS = [1 + tenth / 10 for tenth in range(1, 100)]
_ORDERS += [*range(11, 64), 128, 256, 512, 1024]
# From here on, `dp_accounting` leaves out the first of Theorem 27's two terms.
_LONGEST_SUM = 256

# noise multiplier, C, K, sampling; three numbers of rounds for each.
_MECHANISMS = [
  (0.7, 10, 100, 'fixed'),
  (2.0, 10, 100, 'fixed'),
  (1.5, 50, 3400, 'fixed'),
  (4.0, 10, 20, 'fixed'),
  (1.0, 20, 20, 'fixed'),
  (0.5, 10, 100, 'none'),
  (8.0, 10, 1000, 'none'),
  (0.8, 10, 100, 'poisson'),
  (3.0, 10, 20, 'poisson'),
  (1.2, 20, 20, 'poisson'),
]
_ROUNDS = (1, 40, 900)


def _log_mean(log_values, log_density):
  """Logarithm of an expectation, by sums over a grid of steps of 1/64."""
  return special.logsumexp(log_values + log_density) - math.log(64)


def _grid(sigma, farthest):
  """Outputs of N(0, 1) and log of the likelihood ratio to N(1 / sigma, 1)."""
  x = np.arange(-40 * 64, math.ceil(64 * (40 + farthest / sigma))) / 64
  log_density = -(x**2) / 2 - math.log(2 * math.pi) / 2
  return log_density, x / sigma - 1 / (2 * sigma**2)


def _of_gaussian(sigma):
  return np.array(_ORDERS) / (2 * sigma**2)


def _of_poisson(sigma, share):
  """Mironov et al. 2019, Eq. 3: E[(1 - q + q L)^a] / (a - 1), L the ratio."""
  if share == 1:
    return _of_gaussian(sigma)
  log_density, log_ratio = _grid(sigma, max(_ORDERS))
  log_mixture = np.logaddexp(math.log1p(-share), math.log(share) + log_ratio)
  return np.array(
    [_log_mean(a * log_mixture, log_density) / (a - 1) for a in _ORDERS]
  )


def _of_fixed_size(sigma, share):
  """Wang et al. 2019, Theorem 27, and Corollary 10 between whole orders.

  Their l-th forward difference at 0 of exp((a - 1) epsilon(a)) is E[(L - 1)^l],
  for exp((a - 1) epsilon(a)) is E[L^a].
  """
  if share == 1:
    return _of_gaussian(sigma)
  log_density, log_ratio = _grid(sigma, _LONGEST_SUM)
  with np.errstate(divide='ignore'):  # The ratio is 1 somewhere.
    log_distance = np.maximum(log_ratio, 0) + np.log(
      -np.expm1(-np.abs(log_ratio))
    )

  @functools.cache
  def log_difference(degree):
    return _log_mean(degree * log_distance, log_density)

  def log_sum(order):
    if order == 1:
      return 0.0
    of_two = 1 / sigma**2
    j = np.arange(2, order + 1)
    terms = math.log(2) + j * (j - 1) / (2 * sigma**2)
    terms[0] = min(math.log(4 * math.expm1(of_two)), math.log(2) + of_two)
    if order <= _LONGEST_SUM:
      for index in range(1, len(j)):
        low, high = 2 * (j[index] // 2), 2 * ((j[index] + 1) // 2)
        terms[index] = min(
          terms[index],
          math.log(4) + (log_difference(low) + log_difference(high)) / 2,
        )
    log_binomial = (
      special.gammaln(order + 1)
      - special.gammaln(j + 1)
      - special.gammaln(order - j + 1)
    )
    return special.logsumexp([0, *(terms + j * math.log(share) + log_binomial)])

  log_sum = functools.cache(log_sum)

  def divergence(order):
    low, high = math.floor(order), math.ceil(order)
    part = order - low
    total = (1 - part) * log_sum(low) + part * log_sum(high)
    return total / (order - 1)

  return np.array([divergence(order) for order in _ORDERS])


@functools.cache
def _divergences(noise_multiplier, clients, population, sampling):
  """Renyi divergences of a round, each of which bounds it."""
  share = clients / population
  if sampling == 'poisson':
    return [_of_poisson(noise_multiplier, share)]
  half = noise_multiplier / 2  # A replaced client moves the sum by two norms.
  if sampling == 'none':
    return [_of_gaussian(half)]
  return [_of_gaussian(half), _of_fixed_size(half, share)]


def _epsilon_of(divergences, delta):
  """Canonne et al. 2020, Proposition 12, at the best order."""
  orders = np.array(_ORDERS)
  return np.min(
    divergences
    + np.log1p(-1 / orders)
    - (math.log(delta) + np.log(orders)) / (orders - 1)
  )


def _account(noise_multiplier, clients, population, sampling, **more):
  return tff_ssl.PrivacyAccount(
    noise_multiplier=noise_multiplier,
    clients_per_round=clients,
    num_clients=population,
    sampling=sampling,
    **more,
  )


@pytest.mark.dear
@pytest.mark.parametrize('rounds', _ROUNDS)
@pytest.mark.parametrize('mechanism', _MECHANISMS)
def test_p3_epsilon_is_that_of_an_independent_accountant(mechanism, rounds):
  delta = mechanism[2] ** -1.1
  expected = min(
    _epsilon_of(rounds * of_one, delta) for of_one in _divergences(*mechanism)
  )
  np.testing.assert_allclose(
    _account(*mechanism).epsilon(rounds), expected, rtol=1e-6, atol=1e-6
  )


@pytest.mark.parametrize('rounds', [1, 40])
def test_epsilon_is_above_the_exact_one_without_sampling(rounds):
  """Balle and Wang 2018, Theorem 8: the exact delta of a Gaussian."""
  account = _account(6.0, 10, 100, 'none', delta=1e-3)
  shift = math.sqrt(rounds) * 2 / 6.0

  def delta_at(epsilon):
    above = stats.norm.cdf(shift / 2 - epsilon / shift)
    below = stats.norm.cdf(-shift / 2 - epsilon / shift)
    return above - math.exp(epsilon) * below

  epsilon = account.epsilon(rounds)
  assert delta_at(epsilon) <= 1e-3 <= delta_at(0.75 * epsilon)


@pytest.mark.parts
def test_epsilon_is_above_that_of_loss_distributions():
  account = _account(1.1, 20, 400, 'poisson')
  tight = dp_accounting.pld.PLDAccountant()
  tight.compose(
    dp_accounting.PoissonSampledDpEvent(
      20 / 400, dp_accounting.GaussianDpEvent(1.1)
    ),
    50,
  )
  least = tight.get_epsilon(account.delta)
  assert least < account.epsilon(50) < 1.3 * least


@pytest.mark.parts
@pytest.mark.parametrize('times', [1, 2, 3])
def test_repeated_rounds_are_above_loss_distributions(times):
  """Of one sample, with noise anew: its releases are no independent rounds."""
  account = _account(1.0, 10, 100, 'poisson')
  tight = dp_accounting.pld.PLDAccountant()
  released = [dp_accounting.GaussianDpEvent(1.0)] * times
  mean = dp_accounting.GaussianDpEvent(1.0 / math.sqrt(times))
  tight.compose(dp_accounting.PoissonSampledDpEvent(10 / 100, mean), 20)
  least = tight.get_epsilon(account.delta)
  assert least <= account.epsilon({times: 20}) < 1.4 * least
  assert account.epsilon({1: 20 * times}) <= account.epsilon({times: 20})
  # Without a sample they are rounds like others.
  plain = dp_accounting.pld.PLDAccountant()
  plain.compose(dp_accounting.ComposedDpEvent(released), 20)
  everybody = dataclasses.replace(account, clients_per_round=100)
  assert plain.get_epsilon(account.delta) <= everybody.epsilon({times: 20})


@pytest.mark.parametrize('sampling', ['poisson', 'fixed', 'none'])
def test_releases_of_one_draw_are_one_with_less_noise(sampling):
  account = _account(1.5, 10, 100, sampling)
  noisier = dataclasses.replace(account, noise_multiplier=1.5 / math.sqrt(2))
  twice = account.epsilon({2: 20})
  assert twice == pytest.approx(noisier.epsilon(20), rel=1e-9)
  if sampling == 'none':
    assert twice == pytest.approx(account.epsilon(40), rel=1e-9)
  else:
    assert twice > account.epsilon(40)
  mixed = account.epsilon({1: 20, 2: 20})
  assert account.epsilon(60) <= mixed < account.epsilon({2: 40})
  assert '60 rounds' in account.describe({1: 20, 2: 20})
  with pytest.raises(ValueError, match='releases must be .* but is 0'):
    account.epsilon({0: 3})


def test_a_fixed_cohort_is_not_a_poisson_sample():
  fixed = _account(1.5, 50, 3400, 'fixed')
  poisson = dataclasses.replace(fixed, sampling='poisson')
  none = dataclasses.replace(fixed, sampling='none')
  assert poisson.epsilon(40) < fixed.epsilon(40) < none.epsilon(40)


def test_figures_of_the_page():
  page = pathlib.Path(__file__).parents[2] / 'docs/explanation/privacy.md'
  numbers = re.findall(r'[\d.]*\d', page.read_text(encoding='utf-8'))
  fixed, poisson, none = (
    _account(1.5, 50, 3400, sampling).epsilon(40)
    for sampling in ('fixed', 'poisson', 'none')
  )
  assert {f'{fixed:.2f}', f'{poisson:.2f}', f'{none:.1f}'} <= set(numbers)


def test_replacing_a_client_is_adding_one_at_half_the_noise():
  replaced = _account(1.5, 20, 20, 'none')
  added = _account(0.75, 20, 20, 'poisson')
  assert replaced.epsilon(7) == pytest.approx(added.epsilon(7))


@pytest.mark.parametrize('sampling', ['fixed', 'none', 'poisson'])
def test_epsilon_grows_with_rounds_and_falls_with_noise(sampling):
  account = _account(1.0, 10, 10, sampling)
  over_rounds = [account.epsilon(rounds) for rounds in (0, 1, 2, 30, 1000)]
  assert over_rounds[0] == 0 and (np.diff(over_rounds) > 0).all()
  over_noise = [
    dataclasses.replace(account, noise_multiplier=z).epsilon(30)
    for z in (0.3, 1.0, 3.0, 30.0)
  ]
  assert (np.diff(over_noise) < 0).all()
  with pytest.raises(ValueError, match='rounds must be an integer >= 0, .* -1'):
    account.epsilon(-1)


def test_rounding_makes_no_divergence_negative():
  """`dp_accounting` finds -2.6e-16 at some order here, and refuses it."""
  account = _account(100.0, 1, 10**6, 'poisson')
  assert 0 <= account.epsilon(1000) < 0.1


@pytest.mark.parametrize('stddev', [None, 0.7])
def test_adaptive_clipping_is_one_gaussian(stddev, tff_context):
  """The events of TFF's two queries add up to the noise that we are told."""
  factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
    noise_multiplier=1.2, clients_per_round=16.0, clipped_count_stddev=stddev
  )
  state = factory.create(tff.types.to_type((np.float32, [2]))).initialize()
  event = dp_accounting.DpEvent.from_named_tuple(state.dp_event)
  assert len(event.events) == 2
  theirs = dp_accounting.rdp.RdpAccountant().compose(event, 25)
  ours = _account(1.2, 16, 16, 'poisson', delta=1e-4, adaptive_clip=True)
  assert ours.epsilon(25) == pytest.approx(theirs.get_epsilon(1e-4), rel=1e-5)


@pytest.mark.parametrize(
  'sampling, population, rounds, target',
  costs.rest_in(
    'parts',
    [
      ('none', 100, 300, 5.0),
      ('none', 100, 1, 0.2),
      ('poisson', 100, 40, 2.0),
      ('poisson', 10, 40, 2.0),
      ('fixed', 100, 40, 2.0),
      # As little as without sampling: the other bound is above.
      ('fixed', 12, 900, 3.0),
    ],
    keep=2,
  ),
)
def test_noise_for_an_epsilon(sampling, population, rounds, target):
  found = tff_ssl.noise_multiplier_for(
    target,
    rounds,
    clients_per_round=10,
    num_clients=population,
    sampling=sampling,
  )
  account = _account(found, 10, population, sampling)
  assert account.epsilon(rounds) <= target
  assert account.epsilon(rounds) == pytest.approx(target, rel=1e-4)


def test_p6_p8_a_description_says_all_that_the_number_rests_on():
  text = _account(2.0, 10, 100, 'fixed', adaptive_clip=False).describe(40)
  epsilon = _account(2.0, 10, 100, 'fixed').epsilon(40)
  for part in (
    f'epsilon={epsilon:.4g}',
    'delta=0.00631',
    'Client-level',
    'models of 40 rounds',
    "one client's data are replaced",
    'exactly 10 of 100 clients',
    'without replacement',
    'Not covered: metrics',
    'labelled data',
    'warm-up',
    'settings',
  ):
    assert part in text
  assert 'added or removed' in _account(2.0, 10, 100, 'poisson').describe(1)


@pytest.mark.parametrize(
  'changes, message',
  [
    (
      {'noise_multiplier': 0.0},
      'noise_multiplier must be a number > 0',
    ),
    ({'noise_multiplier': math.inf}, 'noise_multiplier must be .* inf'),
    ({'clients_per_round': 0}, 'clients_per_round must be an integer >= 1'),
    (
      {'clients_per_round': 101},
      '=101 is more than num_clients=100: lower',
    ),
    ({'num_clients': 9.5}, 'num_clients must be an integer >= 1, but is 9.5'),
    ({'sampling': 'uniform'}, "fixed, none, .* but is 'uniform': 'none'"),
    ({'delta': 0.0}, 'delta must be a number > 0, but is 0.0'),
    ({'delta': 1.0}, 'delta must be below 1, but is 1.0: .* 1 / num_clients'),
    ({'num_clients': 1, 'clients_per_round': 1}, 'delta must be below 1'),
    (
      {'adaptive_clip': True},
      r'`clients_per_round=10` must exceed 10 \* `noise_multiplier=1.0` .*take',
    ),
  ],
)
def test_accounts_that_are_none(changes, message):
  good = {'noise_multiplier': 1.0, 'clients_per_round': 10, 'num_clients': 100}
  with pytest.raises(ValueError, match=message):
    tff_ssl.PrivacyAccount(**{**good, **changes})


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'target_epsilon': 0}, 'target_epsilon must be a number > 0, but is 0'),
    ({'rounds': 0}, 'rounds must be an integer >= 1, but is 0'),
    ({'sampling': 'all'}, "sampling must be one of .* 'all'"),
    ({'adaptive_clip': True}, '`clients_per_round=10` must exceed 10'),
  ],
)
def test_noise_for_what_is_no_epsilon(changes, message):
  good = {
    'target_epsilon': 1.0,
    'rounds': 10,
    'clients_per_round': 10,
    'num_clients': 100,
    'sampling': 'none',
  }
  with pytest.raises(ValueError, match=message):
    tff_ssl.noise_multiplier_for(**{**good, **changes})


def _unpacked(ledger, **given):
  return tff_ssl.ReleaseLedger.unpack(ledger.pack(), **given)


def test_a_kill_after_a_release_costs_as_much_as_it_should():
  """Rounds 0 to 2, a kill after the release of 2, then 2 and 3 again."""
  ledger = tff_ssl.ReleaseLedger.unpack(None)
  for round_num in range(3):
    ledger.begin_round(round_num)
  resumed = _unpacked(ledger, rounds_done=2)
  for round_num in (2, 3):
    resumed.begin_round(round_num)
  assert resumed.rounds == 5
  assert resumed.releases() == {1: 3, 2: 1}
  account = tff_ssl.PrivacyAccount(
    noise_multiplier=1.0, clients_per_round=4, num_clients=100
  )
  epsilon = account.epsilon(resumed.releases())
  assert epsilon > account.epsilon(resumed.rounds) > account.epsilon(4)


def test_other_clients_for_one_round_are_another_draw():
  ledger = tff_ssl.ReleaseLedger()
  # The round 1 is given up twice. Of its draws, one is repeated after a kill,
  # and another one after a second kill.
  for round_num, attempt in ((0, 0), (1, 0), (1, 1), (1, 2), (1, 1), (1, 2)):
    ledger.begin_round(round_num, attempt)
    ledger = _unpacked(ledger)
  assert ledger.releases() == {1: 2, 2: 2}
  assert ledger.rounds == 6 and ledger.begun == 2
  # The file grows with what is repeated, not with the rounds.
  for round_num in range(2, 2000):
    ledger.begin_round(round_num)
  assert len(ledger.pack()) < 100
  with pytest.raises(ValueError, match='attempt must be .* but is -1'):
    ledger.begin_round(3, -1)


@pytest.mark.parametrize(
  'content',
  [
    *(b'', b'[]', b'{}', b'\xff', b'3', b'{"begun": 2}', b'{"rounds": -1}'),
    *(
      json.dumps({'begun': 2, 'repeated': {}, **wrong}).encode()
      for wrong in (
        {'begun': -1},
        {'begun': None},
        {'repeated': {'0': [None]}},
        {'begun': '2'},
        {'repeated': []},
        {'repeated': {'2': [2]}},
        {'repeated': {'1': []}},
        {'repeated': {'1': [-2]}},
        {'repeated': {'one': [2]}},
      )
    ),
  ],
)
def test_damaged_ledgers(content):
  with pytest.raises(ValueError, match='ledger .* is damaged .*: restore'):
    tff_ssl.ReleaseLedger.unpack(content)


@pytest.mark.parametrize('content', [None, b'{"begun": 6, "repeated": {}}'])
def test_a_ledger_older_than_its_run(content):
  with pytest.raises(ValueError, match='counts [06] .* rounds_done=7: restore'):
    tff_ssl.ReleaseLedger.unpack(content, rounds_done=7)
