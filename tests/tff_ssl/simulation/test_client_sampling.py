"""Sampling of participants: uniform, balanced, and a function of the round."""

import random

import numpy as np
import pytest
import scipy.stats
import tensorflow_federated as tff

from tff_ssl.simulation import client_sampling


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


def test_sources_redeal_as_sampling_does():
  iterator = client_sampling.ClientKeySource(
    num_clients=20, num_groups=3, seed=4, redeal=True
  ).iterator()
  iterator.select(10)
  restored = client_sampling.ClientKeyIterator.from_bytes(iterator.to_bytes())
  for source in (iterator, restored):
    keys = np.stack(source.select(10))
    np.testing.assert_array_equal(keys, _sample(1, redeal=True))


class TestIterator:
  def _iterator(self):
    return client_sampling.ClientKeySource(
      num_clients=20, num_groups=3, seed=4
    ).iterator()

  def test_selects_round_after_round(self):
    iterator = self._iterator()
    for round_num in range(3):
      np.testing.assert_array_equal(iterator.select(10), _sample(round_num))

  def test_resumes_from_bytes(self):
    iterator = self._iterator()
    iterator.select(10)
    restored = client_sampling.ClientKeyIterator.from_bytes(iterator.to_bytes())
    assert restored == iterator
    np.testing.assert_array_equal(restored.select(10), _sample(1))
    assert restored != iterator
    assert iterator != 'an iterator'

  def test_type_is_that_of_the_keys(self):
    expected = tff.FederatedType(tff.TensorType(np.int32, [4]), tff.CLIENTS)
    source = client_sampling.ClientKeySource(num_clients=5)
    assert source.federated_type == expected
    iterator = source.iterator()
    assert iterator.federated_type == expected
    for key in iterator.select(2):
      assert key.shape == (4,) and key.dtype == np.int32

  @pytest.mark.parametrize('k', [None, 0, 2, 21])
  def test_a_refused_selection_does_not_advance_the_round(self, k):
    iterator = self._iterator()
    with pytest.raises(ValueError, match='num_groups=3 and num_clients=20'):
      iterator.select(k)
    assert iterator == self._iterator()

  @pytest.mark.parametrize(
    'changes, name',
    [
      ({'num_clients': 0}, 'num_clients'),
      ({'num_groups': 0}, 'num_groups'),
      ({'seed': -1}, 'seed'),
    ],
  )
  def test_bad_arguments_are_named(self, changes, name):
    with pytest.raises(ValueError, match=name):
      client_sampling.ClientKeySource(**{'num_clients': 5, **changes})
