"""Draws of participants: their distributions, and who cannot be drawn."""

import functools

import numpy as np
import pytest
import scipy.stats

from tff_ssl.simulation import client_draws, client_sampling

_K, _C = 20, 5


def _build(kind, seed=2):
  return client_draws.build(
    kind, num_clients=_K, clients_per_round=_C, seed=seed
  )


def _drawn(kind, rounds, resting=()):
  """Returns the participants of some rounds."""
  draw = _build(kind)
  return [
    draw(np.random.default_rng([7, n]), n, resting) for n in range(rounds)
  ]


def _sample(n, num_groups=2, **more):
  return client_sampling.sample_keys(
    num_clients=_K,
    clients_per_round=_C,
    num_groups=num_groups,
    seed=3,
    round_num=n,
    **more,
  )


def test_uniform_is_what_sampling_does_by_default():
  for n in range(5):
    drawn = _sample(n, draw=_build('uniform'))
    np.testing.assert_array_equal(drawn, _sample(n))


def test_poisson_draws_each_client_by_itself():
  rounds = 2000
  drawn = _drawn('poisson', rounds)
  sizes = np.array([len(clients) for clients in drawn])
  # The size is binomial; its variance is that of independent clients.
  expected = scipy.stats.binom(_K, _C / _K)
  assert abs(sizes.mean() - _C) < 4 * expected.std() / np.sqrt(rounds)
  np.testing.assert_allclose(sizes.var(), expected.var(), rtol=0.15)
  counts = np.bincount(np.concatenate(drawn), minlength=_K)
  assert scipy.stats.chisquare(counts).pvalue > 1e-3
  keys = _sample(1, 1, draw=_build('poisson'))
  assert [key[2] for key in keys] == list(range(len(keys)))
  # Without its first client, others would change their groups.
  with pytest.raises(ValueError, match="num_groups=2 does not fit a 'poisson'"):
    _sample(1, 2, draw=_build('poisson'))


def test_by_day_clients_come_at_their_time():
  """With one client in a round, the shares are those of availability."""
  day, rounds = 4, 4000
  draw = client_draws.build(
    'daytime', num_clients=_K, clients_per_round=1, seed=2, rounds_per_day=day
  )
  available = functools.partial(
    client_draws.availability, _K, seed=2, rounds_per_day=day
  )
  counts = np.zeros([day, _K])
  for n in range(rounds):
    (client,) = draw(np.random.default_rng([7, n]), n, ())
    counts[n % day, client] += 1
  phases = []
  for time in range(day):
    shares = available(round_num=time)
    phases.append(2 * shares - 1)
    often = shares > 0.05
    seen, shares = counts[time, often], shares[often]
    expected = seen.sum() * shares / shares.sum()
    assert scipy.stats.chisquare(seen, expected).pvalue > 1e-3
  # Cosines of times a quarter of a day apart: half a day later, the opposite.
  np.testing.assert_allclose(phases[0], np.negative(phases[2]), atol=1e-12)
  np.testing.assert_allclose(
    np.square(phases[0]) + np.square(phases[1]), 1, atol=1e-12
  )
  again = 2 * available(round_num=day) - 1
  np.testing.assert_allclose(again, phases[0], atol=1e-12)


@pytest.mark.parametrize('kind', ['uniform', 'poisson', 'daytime'])
def test_who_rests_is_not_drawn(kind):
  resting = np.arange(12)
  for clients in _drawn(kind, 50, resting):
    assert not set(clients) & set(resting)
    assert len(set(clients)) == len(clients)
    assert kind == 'poisson' or len(clients) == _C


def test_an_unknown_kind():
  with pytest.raises(ValueError, match="kind must be one of .*'monthly'"):
    client_draws.build('monthly', num_clients=3, clients_per_round=1)
