"""Seeds differ with each of their parts, and with nothing else."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl import randomness


def _all_seeds():
  """Seeds of every participant for 3 seeds x 4 rounds x 5 clients."""
  for seed, round_num in itertools.product(range(3), range(4)):
    yield randomness.round_seed(seed, round_num)
    yield randomness.server_seed(seed, round_num)
    for client in range(5):
      yield randomness.client_seed(seed, round_num, client)


def test_seeds_are_int32_pairs_and_all_different():
  seeds = [seed.numpy() for seed in _all_seeds()]
  assert {(seed.shape, seed.dtype.name) for seed in seeds} == {((2,), 'int32')}
  assert len({tuple(seed) for seed in seeds}) == 3 * 4 * (1 + 1 + 5)


@pytest.mark.dear
def test_no_state_and_no_difference_between_eager_and_graph():
  first = np.stack([seed.numpy() for seed in _all_seeds()])
  tf.random.set_seed(99)
  tf.random.uniform([3])
  np.testing.assert_array_equal(np.stack(list(_all_seeds())), first)
  in_graph = tf.function(lambda: tf.stack(list(_all_seeds())), autograph=False)
  np.testing.assert_array_equal(in_graph(), first)


def test_a_client_cannot_have_the_seed_of_the_server():
  # 1 is what tells the server apart: a client of that index must not meet it.
  server = randomness.server_seed(0, 0).numpy()
  for client in range(50):
    assert (randomness.client_seed(0, 0, client).numpy() != server).any()


def test_fold_in_differs_for_neighbouring_data_and_takes_int64():
  seed = tf.constant([1, 2])
  folded = [tuple(randomness.fold_in(seed, i).numpy()) for i in range(100)]
  assert len(set(folded)) == 100
  wide = randomness.fold_in(seed, tf.constant(7, tf.int64))
  assert tuple(wide.numpy()) == folded[7]


def test_draws_of_two_seeds_are_uncorrelated():
  one, other = (
    tf.random.stateless_normal([4000], randomness.client_seed(s, 0, 0)).numpy()
    for s in (0, 1)
  )
  # The standard deviation of the correlation of independent samples is
  # 1 / sqrt(4000) = 0.016.
  assert abs(np.corrcoef(one, other)[0, 1]) < 0.08


@pytest.mark.parametrize('seed', [-1, 2**31, 1.5, '3', None])
def test_check_seed_names_the_value(seed):
  with pytest.raises(ValueError, match='seed must be an integer') as error:
    randomness.check_seed(seed)
  assert repr(seed) in str(error.value)


@pytest.mark.parametrize('seed', [0, 7, 2**31 - 1])
def test_check_seed_accepts_the_whole_range(seed):
  randomness.check_seed(seed)
  assert randomness.round_seed(seed, 0).shape == (2,)
