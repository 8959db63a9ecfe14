"""Draws U-sets: sets of labelled examples with given class priors.

Source: FedUL, Section 4 and Appendix D.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from datasets.draws import assignment, prior_draws

PAPER, CODE, CODE_ROWS = 'paper', 'code', 'code_rows'
NO_REPEATS, ACROSS_SETS = 'none', 'across_sets'


@dataclasses.dataclass(frozen=True, eq=False)
class DrawnSets:
  """The sets of all clients.

  Attributes:
    sets: For each client, for each of its sets, the examples `int64 [n]`.
    nominal: For each client `float64 [M_c, d]`, the intended priors. Those of
      the sets differ, because numbers of examples are whole and classes may run
      out.
  """

  sets: list[list[np.ndarray]]
  nominal: list[np.ndarray]


def draw_by_paper(
  labels: np.ndarray,
  num_classes: int,
  *,
  sets_per_client: Sequence[int],
  client_examples: int | None,
  priors: str,
  repeats: str,
  seed: int,
) -> DrawnSets:
  """Draws sets by the text of the paper.

  All sets of a client have n_c / M_c examples, rounded down. The prior gives
  the number of each class, rounded so that the sizes fit. The paper does not
  say whether an example can be in several sets.

  Args:
    labels: `int [N]`, the class of each example.
    num_classes: d.
    sets_per_client: M_c of each client.
    client_examples: n_c; `None` for the largest number that the classes allow
      without repeats, at most N / C.
    priors: `'iid'` or `'noniid'` (`prior_draws`).
    repeats: `'none'`, or `'across_sets'`: each set is drawn anew from the n_c
      examples of its client.
    seed: Fixes priors and sets.

  Raises:
    ValueError: If a class has too few examples, or a set would be empty.
  """
  supply = np.bincount(labels, minlength=num_classes)
  rng = assignment.generator(seed, assignment.Purpose.SET_PRIORS)
  shares = prior_draws.paper_class_shares(
    priors, len(sets_per_client), supply / supply.sum(), rng
  )
  nominal = [
    prior_draws.paper_priors(num_sets, own, rng)
    for num_sets, own in zip(sets_per_client, shares, strict=True)
  ]
  if client_examples is None:
    counts = _largest_counts(nominal, supply)
  else:
    counts = _counts(nominal, client_examples)
    short = np.flatnonzero(_demand(counts) > supply)
    if short.size:
      raise ValueError(
        f'client_examples={client_examples} asks for '
        f'{_demand(counts)[short[0]]:,} examples of class {short[0]}, which '
        f'has {supply[short[0]]:,}: lower it.'
      )
  _check_not_empty(
    [own.sum(axis=1) for own in counts], client_examples, sets_per_client
  )
  rng = assignment.generator(seed, assignment.Purpose.SET_EXAMPLES)
  pools = _deal_out(labels, [own.sum(axis=0) for own in counts], rng)
  return DrawnSets(_fill(pools, counts, repeats, rng), nominal)


def draw_by_code(
  labels: np.ndarray,
  num_classes: int,
  *,
  sets_per_client: Sequence[int],
  client_examples: int | None,
  priors: str,
  repeats: str,
  seed: int,
  by_rows: bool = False,
) -> DrawnSets:
  """Draws sets as the authors' code does.

  Each client gets n_c examples: at random (IID), or with two majority classes.
  If a class runs out, later clients get the rest. Of class k, a set takes
  n_c / M_c times its quota, rounded down, or all that its client has.

  Args:
    labels: `int [N]`, the class of each example.
    num_classes: d.
    sets_per_client: M_c of each client.
    client_examples: n_c; `None` for N / C.
    priors: `'iid'` or `'noniid'`.
    repeats: `'across_sets'` as the code does, or `'none'`.
    seed: Fixes priors and sets.
    by_rows: As in `prior_draws.code_quotas`.

  Raises:
    ValueError: If there are too few examples, or a set is empty.
  """
  num_clients = len(sets_per_client)
  size = len(labels) // num_clients
  if client_examples is not None:
    if client_examples > size:
      raise ValueError(
        f'client_examples={client_examples} for each of {num_clients} clients '
        f'is more than the {len(labels):,} examples in all: lower it.'
      )
    size = client_examples
  rng = assignment.generator(seed, assignment.Purpose.SET_PRIORS)
  quotas = prior_draws.code_quotas(
    priors, sets_per_client, num_classes, rng, by_rows=by_rows
  )
  shares = prior_draws.code_class_shares(num_clients, num_classes, rng)
  rng = assignment.generator(seed, assignment.Purpose.SET_EXAMPLES)
  if priors == prior_draws.IID:
    given = rng.permutation(len(labels))[: num_clients * size]
    pools = [
      [own[labels[own] == k] for k in range(num_classes)]
      for own in np.split(given, num_clients)
    ]
  else:
    pools = _deal_out(labels, np.int64(shares * size), rng)
  counts = [
    np.int64(sum(map(len, pool)) // len(own) * own)
    for pool, own in zip(pools, quotas, strict=True)
  ]
  sets = _fill(pools, counts, repeats, rng)
  _check_not_empty(
    [[len(members) for members in own] for own in sets],
    client_examples,
    sets_per_client,
  )
  rows = [own / own.sum(axis=1, keepdims=True) for own in quotas]
  return DrawnSets(sets, rows)


def _counts(nominal, client_examples) -> list[np.ndarray]:
  """Rounds numbers of examples so that each set has n_c // M_c of them."""
  counts = []
  for own in nominal:
    wanted = client_examples // len(own) * own
    rounded = np.floor(wanted).astype(np.int64)
    missing = (client_examples // len(own)) - rounded.sum(axis=1)
    # The largest remainders are rounded up.
    order = np.argsort(rounded - wanted, axis=1, kind='stable')
    for row, (classes, number) in enumerate(zip(order, missing, strict=True)):
      rounded[row, classes[:number]] += 1
    counts.append(rounded)
  return counts


def _demand(counts) -> np.ndarray:
  return np.sum([own.sum(axis=0) for own in counts], axis=0)


def _largest_counts(nominal, supply) -> list[np.ndarray]:
  """Returns the counts for the largest n_c <= N / C that the classes allow."""
  per_example = np.sum([own.mean(axis=0) for own in nominal], axis=0)
  wanted = per_example > 0
  size = int((supply[wanted] / per_example[wanted]).min())
  size = min(size, supply.sum() // len(nominal))
  # After rounding, a few examples may be missing.
  while size > 0:
    counts = _counts(nominal, size)
    if (_demand(counts) <= supply).all():
      return counts
    size -= 1
  return _counts(nominal, 0)


def _deal_out(labels, counts, rng) -> list[list[np.ndarray]]:
  """Assigns each class to one client after another until it runs out.

  Args:
    labels: `int [N]`, the class of each example.
    counts: `[C, d]`, how many of each class each client is to receive.
    rng: The random stream.

  Returns:
    For each client and class, the examples, in random order.
  """
  counts = np.asarray(counts)
  pools = [[] for _ in counts]
  for label in range(counts.shape[1]):
    members = rng.permutation(np.flatnonzero(labels == label))
    parts = np.split(members, np.cumsum(counts[:, label]))
    for pool, part in zip(pools, parts[:-1], strict=True):
      pool.append(part)
  return pools


def _fill(pools, counts, repeats, rng) -> list[list[np.ndarray]]:
  """Takes each set's examples from its client's until these run out."""
  sets = []
  for pool, own in zip(pools, counts, strict=True):
    if repeats == NO_REPEATS:
      by_class = [
        np.split(members, np.cumsum(numbers))[:-1]
        for members, numbers in zip(pool, own.T, strict=True)
      ]
    else:
      by_class = [
        [rng.permutation(members)[:number] for number in numbers]
        for members, numbers in zip(pool, own.T, strict=True)
      ]
    sets.append(
      [np.concatenate(parts) for parts in zip(*by_class, strict=True)]
    )
  return sets


def _check_not_empty(sizes, client_examples, sets_per_client) -> None:
  for client, own in enumerate(sizes):
    if min(own) < 1:
      given = 'the data leave'
      if client_examples is not None:
        given = f'client_examples={client_examples} leaves'
      raise ValueError(
        f'sets_per_client={sets_per_client[client]}: {given} a set of client '
        f'{client} empty: lower the number of sets or of clients, or give more '
        'examples.'
      )
