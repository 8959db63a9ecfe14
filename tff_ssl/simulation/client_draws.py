"""How the participants of a round are drawn.

A draw takes a generator of random numbers, the round and the clients that rest
in it, and returns the indices of those that are invited. `build` makes one.
"""

import functools
import math
from collections.abc import Callable, Collection

import numpy as np

from tff_ssl.common.randomness import Purpose, generator

KINDS = ('uniform', 'poisson', 'daytime')

Draw = Callable[[np.random.Generator, int, Collection[int]], np.ndarray]


def build(
  kind: str,
  *,
  num_clients: int,
  clients_per_round: int,
  seed: int = 0,
  rounds_per_day: int = 24,
) -> Draw:
  """Returns how the participants of a round are drawn.

  Args:
    kind: 'uniform': C clients, without replacement. 'poisson': each client by
      itself, with the probability C / K, so that C is a mean. 'daytime': C
      clients without replacement, with probabilities in proportion to their
      `availability`.
    num_clients: K.
    clients_per_round: C <= K.
    seed: The run's seed.
    rounds_per_day: For 'daytime'.

  Raises:
    ValueError: If the kind is unknown.
  """
  size = {'num_clients': num_clients, 'clients_per_round': clients_per_round}
  if kind == 'uniform':
    return functools.partial(_uniform, **size)
  if kind == 'poisson':
    return functools.partial(_poisson, **size)
  if kind == 'daytime':
    return functools.partial(
      _daytime, **size, seed=seed, rounds_per_day=rounds_per_day
    )
  raise ValueError(f'kind must be one of {KINDS}, but is {kind!r}.')


def draws_each_by_itself(draw: Draw) -> bool:
  """Whether the number of clients of a round is left to chance ('poisson')."""
  return getattr(draw, 'func', draw) is _poisson


def availability(
  num_clients: int, *, seed: int, round_num: int, rounds_per_day: int
) -> np.ndarray:
  """Returns how available each client is at the time of day of a round.

  It is (1 + cos(2 pi (t - p_k))) / 2 with t the time of day and p_k the time at
  which client k is idle most, both as shares of a day. p_k is uniform. Such
  availability in cycles is described in Eichner et al. (arXiv 1904.10120).

  Args:
    num_clients: K.
    seed: The run's seed, by which p_k is drawn.
    round_num: Rounds before this one.
    rounds_per_day: Rounds in a day.

  Returns:
    `float64 [K]`, in [0, 1].
  """
  phases = generator(Purpose.DAYTIME, seed).random(num_clients)
  time = round_num / rounds_per_day
  return (1 + np.cos(2 * math.pi * (time - phases))) / 2


def _uniform(rng, round_num, resting, *, num_clients, clients_per_round):
  del round_num
  order = rng.permutation(num_clients)
  return order[~np.isin(order, list(resting))][:clients_per_round]


def _poisson(rng, round_num, resting, *, num_clients, clients_per_round):
  del round_num
  drawn = np.flatnonzero(
    rng.random(num_clients) < clients_per_round / num_clients
  )
  return drawn[~np.isin(drawn, list(resting))]


def _daytime(
  rng,
  round_num,
  resting,
  *,
  num_clients,
  clients_per_round,
  seed,
  rounds_per_day,
):
  weights = availability(
    num_clients,
    seed=seed,
    round_num=round_num,
    rounds_per_day=rounds_per_day,
  )
  weights[list(resting)] = 0
  return rng.choice(
    num_clients,
    clients_per_round,
    replace=False,
    p=weights / weights.sum(),
  )
