"""Draws the class priors of U-sets: the matrix Pi_c of each client.

Row m of Pi_c holds the shares of the d classes in the client's set m (FedUL,
Lu et al., "Federated Learning from Only Unlabeled Data with
Class-conditional-sharing Clients", Section 3.1). There are two ways to draw it:
by the text of the paper (Section 4), and as the authors' code does.

The text draws entries from [.1, .9] and "regularises" them. Here, rows and
columns are scaled in turn (iterative proportional fitting) until each row sums
to 1 and the mean row is the client's class distribution. That is the
distribution of the data for each client (IID), or one with 2 majority and d - 2
minority classes (non-IID).
"""

from collections.abc import Sequence

import numpy as np

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


def majority_classes(client: int, num_classes: int) -> list[int]:
  """Returns the two majority classes of a non-IID client, as in Table D.5.

  Args:
    client: The index of the client, from 0.
    num_classes: d.
  """
  return [(2 * client + i) % num_classes for i in range(_NUM_MAJORITY)]


def paper_class_shares(
  priors: str,
  num_clients: int,
  data_shares: np.ndarray,
  rng: np.random.Generator,
) -> np.ndarray:
  """Draws the class distribution of each client, by the text of Section 4.

  Args:
    priors: `'iid'` (each client has that of the data) or `'noniid'`.
    num_clients: C.
    data_shares: `float [d]`, the shares of the classes among the data.
    rng: The random stream.

  Returns:
    `float64 [C, d]`; rows sum to 1.

  Raises:
    ValueError: If there are too few classes for non-IID shares.
  """
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
  return np.stack(
    [_shifted_shares(c, num_classes, rng) for c in range(num_clients)]
  )


def _shifted_shares(client, num_classes, rng):
  majority = majority_classes(client, num_classes)
  minority = np.setdiff1d(np.arange(num_classes), majority)
  while True:
    shares = np.zeros(num_classes)
    shares[majority] = rng.uniform(*_MAJORITY, _NUM_MAJORITY)
    weights = rng.uniform(*_MINORITY_WEIGHTS, len(minority))
    shares[minority] = (1 - shares.sum()) * weights / weights.sum()
    if shares[minority].max() < _MINORITY_BELOW:
      return shares


def paper_priors(
  num_sets: int, class_shares: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Draws the class priors of a client's sets, by the text of Section 4.

  Args:
    num_sets: M_c.
    class_shares: `float [d]`, the client's class distribution.
    rng: The random stream.

  Returns:
    `float64 [M_c, d]`; rows sum to 1, and their mean is `class_shares`.
  """
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
  """Draws the class distribution of each client, as the authors' code does.

  Two majority classes have about 48% each, the others about .6% (Table D.5).
  The text of Section 4 says otherwise.

  Args:
    num_clients: C.
    num_classes: d.
    rng: The random stream.

  Returns:
    `float64 [C, d]`; rows sum to 1.
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
  """Draws the factors by which the authors' code multiplies a set's size.

  The entries are drawn from [.1, 1]. That of class i mod d in set i is
  multiplied by 10, and each row is normalised. For IID clients these matrices
  are summed, the sum is normalised by column, and all clients share it. With M
  sets its rows sum to d / M on average, so a client's data shrink as M grows
  beyond d. Only their code of FedUL on CIFAR-10 normalises the sum by row,
  which keeps the amount of data.

  Args:
    priors: `'iid'` or `'noniid'`.
    sets_per_client: M_c of each client. IID clients need equal numbers.
    num_classes: d.
    rng: The random stream.
    by_rows: Whether the sum of IID clients is normalised by row.

  Returns:
    For each client `float64 [M_c, d]`.

  Raises:
    ValueError: If IID clients have different numbers of sets.
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
