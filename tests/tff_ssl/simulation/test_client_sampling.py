"""Sampling of participants: uniform, balanced, and a function of the round."""

import random

import numpy as np
import pytest
import scipy.stats

from tff_ssl.simulation import client_sampling

_K, _C = 20, 5


def _sample(round_num=0, **changes):
  arguments = {
    'num_clients': 20,
    'clients_per_round': 10,
    'num_groups': 3,
    'seed': 4,
  }
  keys = client_sampling.sample_keys(
    round_num=round_num, **{**arguments, **changes}
  )
  return np.stack(keys)


def test_keys_are_distinct_clients_in_equal_groups():
  for round_num in range(20):
    keys = _sample(round_num)
    assert keys.shape == (10, 4) and keys.dtype == np.int32
    assert len(set(keys[:, 0])) == 10
    assert keys[:, 0].min() >= 0 and keys[:, 0].max() < 20
    sizes = np.bincount(keys[:, 1], minlength=3)
    assert sorted(sizes) == [3, 3, 4]
    assert keys[:, 2].tolist() == list(range(10))
    assert keys[:, 3].tolist() == keys[:, 1].tolist()


def test_redealt_clients_start_from_their_groups_of_the_round_before():
  """Newcomers start from the group in which their slot was."""
  before = _sample(0, redeal=True)
  assert before[:, 3].tolist() == before[:, 1].tolist()
  moved = 0
  for round_num in range(1, 20):
    keys = _sample(round_num, redeal=True)
    plain = _sample(round_num)
    np.testing.assert_array_equal(keys[:, [0, 2]], plain[:, [0, 2]])
    assert sorted(np.bincount(keys[:, 1], minlength=3)) == [3, 3, 4]
    own = dict(before[:, :2])
    for slot, (client, _, _, start) in enumerate(keys):
      assert start == own.get(client, before[slot, 1])
    moved += (keys[:, 3] != keys[:, 1]).sum()
    before = keys
  # Two thirds of the slots change their group.
  assert 0.5 < moved / 190 < 0.8


@pytest.mark.parametrize(
  'clients, groups, sizes',
  [
    # The group sizes of the paper's EMNIST runs.
    (10, 2, [5, 5]),
    (30, 3, [10, 10, 10]),
    (6, 1, [6]),
    (4, 4, [1, 1, 1, 1]),
  ],
)
def test_group_sizes(clients, groups, sizes):
  keys = _sample(num_clients=47, clients_per_round=clients, num_groups=groups)
  assert np.bincount(keys[:, 1]).tolist() == sizes


def test_all_clients_take_part_when_c_is_k():
  keys = _sample(clients_per_round=20)
  assert sorted(keys[:, 0]) == list(range(20))


def test_sampling_is_uniform_over_clients_and_pairs_with_groups():
  rounds = 600
  counts = np.zeros([20, 2])
  for round_num in range(rounds):
    keys = _sample(round_num, num_groups=2)
    np.add.at(counts, (keys[:, 0], keys[:, 1]), 1)
  # A client is in each group in a quarter of the rounds. Draws without
  # replacement vary less than independent ones, so that the test is cautious.
  assert scipy.stats.chisquare(counts.ravel()).pvalue > 1e-3
  assert counts.sum() == rounds * 10


def test_a_function_of_seed_and_round_alone():
  first = _sample(3)
  np.random.seed(1)
  random.seed(1)
  np.testing.assert_array_equal(_sample(3), first)
  assert (_sample(4) != first).any()
  assert (_sample(3, seed=5) != first).any()


@pytest.mark.parametrize('redeal', [False, True])
def test_groups_do_not_change_who_takes_part(redeal):
  """So that processes are compared, and probed, on the same clients."""
  alone = _sample(7, num_groups=1, redeal=redeal)
  for groups in (2, 5):
    several = _sample(7, num_groups=groups, redeal=redeal)
    np.testing.assert_array_equal(several[:, 0], alone[:, 0])


def _build(kind, clients_per_round=_C):
  return client_sampling.Draw(kind, _K, clients_per_round)


def _drawn(kind, rounds, resting=()):
  """Returns the participants of some rounds."""
  draw = _build(kind)
  return [draw(np.random.default_rng([7, n]), resting) for n in range(rounds)]


def test_uniform_is_what_sampling_does_by_default():
  for n in range(5):
    drawn = _sample(n, draw=_build('uniform', 10))
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
  keys = _sample(1, num_groups=1, draw=_build('poisson'))
  assert [key[2] for key in keys] == list(range(len(keys)))
  # Without its first client, others would change their groups.
  with pytest.raises(ValueError, match="num_groups=2 does not fit a 'poisson'"):
    _sample(1, num_groups=2, draw=_build('poisson'))


@pytest.mark.parametrize('kind', ['uniform', 'poisson'])
def test_who_rests_is_not_drawn(kind):
  resting = np.arange(12)
  for clients in _drawn(kind, 50, resting):
    assert not set(clients) & set(resting)
    assert len(set(clients)) == len(clients)
    assert kind == 'poisson' or len(clients) == _C


def test_an_unknown_kind():
  with pytest.raises(ValueError, match="kind must be one of .*'monthly'"):
    client_sampling.Draw('monthly', 3, 1)
