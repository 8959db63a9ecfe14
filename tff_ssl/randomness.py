"""All randomness of a round derives from (seed, round, who, purpose).

Seeds are `int32 [2]` tensors for the stateless ops of TensorFlow. Nothing here
keeps a state: a round that is repeated draws the same numbers.
"""

import numbers

import tensorflow as tf

from tff_ssl.common.randomness import Purpose

# Who draws. A client's own index follows _CLIENT, so that no index can collide
# with the server.
_SERVER = 1
_CLIENT = 2


def round_seed(seed: tf.Tensor, round_num: tf.Tensor) -> tf.Tensor:
  """Returns the seed of a round, `int32 [2]`, from two `int32` scalars."""
  root = tf.stack([tf.cast(seed, tf.int32), 0])
  return fold_in(root, round_num)


def run_seed(seed: tf.Tensor, purpose: Purpose) -> tf.Tensor:
  """Returns the seed of what is drawn once for all rounds of a run."""
  return fold_in(tf.stack([tf.cast(seed, tf.int32), 1]), purpose)


def server_seed(seed: tf.Tensor, round_num: tf.Tensor) -> tf.Tensor:
  """Returns the seed of the server's own training in a round."""
  return fold_in(round_seed(seed, round_num), _SERVER)


def client_seed(
  seed: tf.Tensor, round_num: tf.Tensor, client: tf.Tensor
) -> tf.Tensor:
  """Returns the seed of the client with index `client` in a round."""
  return fold_in(fold_in(round_seed(seed, round_num), _CLIENT), client)


def fold_in(seed: tf.Tensor, data) -> tf.Tensor:
  """Returns a new seed for `data`, an integer: a round, a step, a purpose."""
  return tf.random.experimental.stateless_fold_in(seed, tf.cast(data, tf.int32))


def check_seed(seed: int) -> None:
  """Raises `ValueError` unless `seed` is an int in [0, 2**31)."""
  if not isinstance(seed, numbers.Integral) or not 0 <= seed < 2**31:
    raise ValueError(
      f'seed must be an integer in [0, 2147483647], but is {seed!r}.'
    )
