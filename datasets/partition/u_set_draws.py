"""Draws U-sets: sets of labelled examples with given class priors.

Source: FedUL (Lu et al., "Federated Learning from Only Unlabeled Data with
Class-conditional-sharing Clients"), Sections 3.1 and 4, and Appendix D. Row m
of the matrix Pi_c holds the shares of the d classes in the set m of client c.

The text of the paper draws entries from [.1, .9] and "regularises" them: here,
rows and columns are scaled in turn (iterative proportional fitting) until each
row sums to 1 and the mean row is the client's class distribution. The authors'
code draws otherwise.
"""

from collections.abc import Sequence

import numpy as np

from tff_ssl.common.randomness import Purpose, generator

PAPER, CODE, CODE_ROWS = 'paper', 'code', 'code_rows'
NO_REPEATS, ACROSS_SETS = 'none', 'across_sets'

IID, NONIID = 'iid', 'noniid'

_ENTRIES = (0.1, 0.9)
# Section 4: the share of each of two majority classes, and the limit of each
# minority class; minority shares differ by up to a tenth.
_NUM_MAJORITY = 2
_MAJORITY = (0.15, 0.25)
_MINORITY_BELOW = 0.08
_MINORITY_WEIGHTS = (0.9, 1.1)
# With fewer classes, minority shares below the limit cannot sum to the rest.
_LEAST_CLASSES = 9
# The authors' code: entries, factors of the class whose turn it is, and the
# weights of the classes of a non-IID client.
_CODE_ENTRIES = (0.1, 1.0)
_CODE_FACTOR = 10
_CODE_WEIGHTS = (0.45, 0.55)
_CODE_MAJORITY_FACTOR = 80
_FITTED = 1e-12
_MAX_SWEEPS = 10_000


# The examples `int64 [n]` of each client's sets, and the priors `[M_c, d]` that
# are meant. Those of the sets differ: numbers are whole, classes may run out.
DrawnSets = tuple[list[list[np.ndarray]], list[np.ndarray]]


def majority_classes(client: int, num_classes: int) -> list[int]:
  """Returns the two majority classes of a non-IID client, as in Table D.5."""
  return [(2 * client + i) % num_classes for i in range(_NUM_MAJORITY)]


def paper_class_shares(
  priors: str,
  num_clients: int,
  data_shares: np.ndarray,
  rng: np.random.Generator,
) -> np.ndarray:
  """Draws each client's class distribution as in Section 4, `[C, d]`."""
  num_classes = len(data_shares)
  if priors == IID:
    return np.tile(data_shares, (num_clients, 1))
  if num_classes < _LEAST_CLASSES:
    raise ValueError(
      f'priors={priors!r} needs {_LEAST_CLASSES} classes or more, and there '
      f'are {num_classes}: two majority classes of at most {_MAJORITY[1]:g} '
      f'leave more than {_MINORITY_BELOW:g} for each of the others; choose '
      f'priors={IID!r}, or the recipe of the code.'
    )
  drawn = []
  while len(drawn) < num_clients:
    majority = majority_classes(len(drawn), num_classes)
    minority = np.setdiff1d(np.arange(num_classes), majority)
    shares = np.zeros(num_classes)
    shares[majority] = rng.uniform(*_MAJORITY, _NUM_MAJORITY)
    weights = rng.uniform(*_MINORITY_WEIGHTS, len(minority))
    shares[minority] = (1 - shares.sum()) * weights / weights.sum()
    if shares[minority].max() < _MINORITY_BELOW:
      drawn.append(shares)
  return np.stack(drawn)


def paper_priors(
  num_sets: int, class_shares: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Draws the class priors of a client's sets as in Section 4, `[M_c, d]`."""
  entries = rng.uniform(*_ENTRIES, (num_sets, len(class_shares)))
  columns = num_sets * class_shares
  for _ in range(_MAX_SWEEPS):
    sums = entries.sum(axis=0)
    # A class without data has no share in any set.
    entries = entries * np.divide(
      columns, sums, out=np.zeros_like(sums), where=sums > 0
    )
    rows = entries.sum(axis=1, keepdims=True)
    entries = entries / rows
    if np.abs(rows - 1).max() < _FITTED:
      break
  return entries


def code_class_shares(
  num_clients: int, num_classes: int, rng: np.random.Generator
) -> np.ndarray:
  """Draws each client's class distribution as the authors' code, `[C, d]`.

  Two majority classes have about 48% each, the others about .6% (Table D.5).
  The text of Section 4 says otherwise.
  """
  weights = rng.uniform(*_CODE_WEIGHTS, (num_clients, num_classes))
  for client in range(num_clients):
    weights[client, majority_classes(client, num_classes)] *= (
      _CODE_MAJORITY_FACTOR
    )
  return weights / weights.sum(axis=1, keepdims=True)


def code_quotas(
  priors: str,
  sets_per_client: Sequence[int],
  num_classes: int,
  rng: np.random.Generator,
  *,
  by_rows: bool = False,
) -> list[np.ndarray]:
  """Draws the factors, `[M_c, d]`, of a set's size as the authors' code does.

  For IID clients the matrices are summed, the sum is normalised by column, and
  all clients share it: with M sets its rows sum to d / M on average, so that a
  client's data shrink as M grows beyond d. Only their code of FedUL on CIFAR-10
  normalises the sum by row (`by_rows`), which keeps the amount of data.
  """
  own = []
  for num_sets in sets_per_client:
    entries = rng.uniform(*_CODE_ENTRIES, (num_sets, num_classes))
    turns = np.arange(num_sets)
    entries[turns, turns % num_classes] *= _CODE_FACTOR
    own.append(entries / entries.sum(axis=1, keepdims=True))
  if priors != IID:
    return own
  if len(set(sets_per_client)) > 1:
    raise ValueError(
      f'sets_per_client={list(sets_per_client)}: IID clients share one matrix '
      'of priors in the recipe of the code; give one number, or choose the '
      'recipe of the paper.'
    )
  total = np.sum(own, axis=0)
  sums = total.sum(axis=1, keepdims=True) if by_rows else total.sum(axis=0)
  return [total / sums] * len(sets_per_client)


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
  """Draws sets of n_c / M_c examples, rounded down, by the text of the paper.

  Args:
    sets_per_client: M_c of each client.
    client_examples: n_c; `None` for the largest number that the classes allow
      without repeats, at most N / C.
    repeats: `'none'`, or `'across_sets'`: each set is drawn anew from the n_c
      examples of its client. The paper does not say which.
  """
  supply = np.bincount(labels, minlength=num_classes)
  rng = generator(Purpose.SET_PRIORS, seed)
  shares = paper_class_shares(
    priors, len(sets_per_client), supply / supply.sum(), rng
  )
  nominal = [
    paper_priors(num_sets, own, rng)
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
  rng = generator(Purpose.SET_EXAMPLES, seed)
  pools = _deal_out(labels, [own.sum(axis=0) for own in counts], rng)
  return _fill(pools, counts, repeats, rng), nominal


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
  """Draws sets as the authors' code does; arguments as in `draw_by_paper`.

  Each client gets n_c examples, N / C by default: at random (IID), or with two
  majority classes. Of class k, a set takes n_c / M_c times its quota, rounded
  down, or all that its client has. The code draws `'across_sets'`.
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
  rng = generator(Purpose.SET_PRIORS, seed)
  quotas = code_quotas(
    priors, sets_per_client, num_classes, rng, by_rows=by_rows
  )
  shares = code_class_shares(num_clients, num_classes, rng)
  rng = generator(Purpose.SET_EXAMPLES, seed)
  if priors == IID:
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
  return sets, rows


def _counts(nominal, client_examples) -> list[np.ndarray]:
  """Rounds numbers of examples so that each set has n_c // M_c of them."""
  counts = []
  for own in nominal:
    wanted = client_examples // len(own) * own
    rounded = np.floor(wanted).astype(np.int64)
    missing = (client_examples // len(own)) - rounded.sum(axis=1)
    # The largest remainders are rounded up.
    order = np.argsort(rounded - wanted, axis=1, kind='stable')
    counts.append(rounded + (np.argsort(order, axis=1) < missing[:, None]))
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
  """Deals `counts[c, k]` examples of class k to client c until it runs out."""
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
    by_class = [
      np.split(members, np.cumsum(numbers))[:-1]
      if repeats == NO_REPEATS
      else [rng.permutation(members)[:number] for number in numbers]
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
