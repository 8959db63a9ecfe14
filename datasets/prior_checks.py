"""What class priors of sets must be, so that a classifier can be learnt.

The conditions of FedUL (Lu et al., "Federated Learning from Only Unlabeled Data
with Class-conditional-sharing Clients", Section 3.1 and Lemma 2): each client
has at least as many sets as classes, and its matrix of priors has full column
rank; otherwise different classifiers explain its sets equally well.
"""

from collections.abc import Sequence

import numpy as np

# Rows may miss 1 by this much, as rounded percentages in a table do; they are
# then divided by their sum.
ROW_TOLERANCE = 1e-3
# Errors of the priors are magnified up to so many times: errors of the size of
# the tolerance above then tell nothing.
CLOSE_TO_SINGULAR = 1 / ROW_TOLERANCE


def check(
  class_priors: Sequence[np.ndarray],
  client_names: Sequence[str],
  class_names: Sequence[str],
  *,
  full_rank: bool = True,
) -> None:
  """Checks the priors of all clients.

  Args:
    class_priors: For each client `float [M_c, d]`, rows that sum to 1.
    client_names: Their names.
    class_names: The names of the d classes.
    full_rank: Whether the sets of each client must tell all classes apart by
      themselves.

  Raises:
    ValueError: If a class has no prior anywhere, or a client has fewer sets
      than classes or a matrix without full column rank.
  """
  somewhere = np.any([own.any(axis=0) for own in class_priors], axis=0)
  if not somewhere.all():
    name = class_names[int(np.argmin(somewhere))]
    raise ValueError(
      f'class {name!r} has a prior of 0 in every set of every client: leave '
      'the class out, or give priors above 0.'
    )
  for client, own in zip(client_names, class_priors, strict=True):
    num_sets, num_classes = own.shape
    if num_sets < num_classes:
      raise ValueError(
        f'{client!r} has {num_sets} sets for {num_classes} classes: each '
        'client needs as many sets as classes or more.'
      )
    rank = np.linalg.matrix_rank(own)
    if full_rank and rank < num_classes:
      raise ValueError(
        f'the class priors of {client!r} have rank {rank} for {num_classes} '
        'classes, so that its sets do not tell all classes apart: give sets '
        'of other priors, or leave the client out.'
      )


def normalised_row(what: str, row: np.ndarray) -> np.ndarray:
  """Returns the priors of one set, divided by their sum.

  Args:
    what: Whose they are, for messages.
    row: `float [d]`.

  Raises:
    ValueError: If an entry is no share, or the sum is not 1 within
      `ROW_TOLERANCE`.
  """
  if not np.isfinite(row).all() or row.min() < 0:
    raise ValueError(
      f'{what}: the class priors {row.tolist()} are not all numbers of at '
      'least 0: correct them.'
    )
  if abs(row.sum() - 1) > ROW_TOLERANCE:
    raise ValueError(
      f'{what}: the class priors sum to {row.sum():.6g} instead of 1: correct '
      'them (shares, not percentages).'
    )
  return row / row.sum()


def condition_number(own: np.ndarray) -> float:
  """Returns how much a client's priors magnify errors: at least 1.

  The largest singular value of Pi_c over the smallest, of the columns that are
  not zero throughout. Up from `CLOSE_TO_SINGULAR` a client's sets hardly tell
  the classes apart, and at the most, 1 over the machine epsilon, not at all.

  Args:
    own: `float [M, d]`; rows of zeros change nothing.
  """
  number = np.linalg.cond(own[:, own.any(axis=0)])
  return float(min(number, 1 / np.finfo(np.float64).eps))
