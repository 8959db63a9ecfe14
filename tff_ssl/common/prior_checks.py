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
_ROUNDING = 1e-9
# Errors of the priors are magnified up to so many times: errors of the size of
# the tolerance above then tell nothing.
CLOSE_TO_SINGULAR = 1 / ROW_TOLERANCE


def check_class_priors(
  class_priors: Sequence[np.ndarray],
  client_names: Sequence[str] | None = None,
  class_names: Sequence[str] | None = None,
  *,
  full_rank: bool = True,
) -> list[np.ndarray]:
  """Checks the priors of all clients, or of those that the caller sees.

  Processes cannot: priors come with the clients' data, round by round, and a
  client's are its own. So whoever holds some calls this before round 1.

  Args:
    class_priors: For each client `float [M_c, d]`, a row of shares for each of
      its sets; rows of zeros at the end are no sets.
    client_names: Their names, for messages; numbers by default.
    class_names: The names of the d classes; numbers by default.
    full_rank: Whether the sets of each client must tell all classes apart by
      themselves.

  Returns:
    For each client `float64 [M_c, d]`, rows divided by their sums, without rows
    of zeros at the end.

  Raises:
    ValueError: If priors are no matrices of one width, an entry is no share, a
      row does not sum to 1 within `ROW_TOLERANCE`, a class has no prior
      anywhere, or a client has fewer sets than classes or a matrix without full
      column rank.
  """
  try:
    given = [np.asarray(own, np.float64) for own in class_priors]
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'class_priors are not all matrices of numbers ({error}): give each '
      'client a matrix, sets x classes.'
    ) from error
  if client_names is None:
    client_names = [f'client {index}' for index in range(len(given))]
  if not given or any(own.ndim != 2 or not own.size for own in given):
    raise ValueError(
      f'class_priors are of shapes {[own.shape for own in given]}: give each '
      'client a matrix, sets x classes.'
    )
  widths = {own.shape[1] for own in given}
  if class_names is None:
    class_names = [str(index) for index in range(max(widths))]
  if widths != {len(class_names)} or len(client_names) != len(given):
    raise ValueError(
      f'class_priors are of shapes {[own.shape for own in given]} for '
      f'{len(client_names)} clients and {len(class_names)} classes: give each '
      'client a matrix, sets x classes.'
    )
  checked = []
  for client, own in zip(client_names, given, strict=True):
    num_sets = 1 + np.max(np.flatnonzero(own.any(axis=1)), initial=-1)
    rows = [
      normalised_row(f'set {index} of {client!r}', row)
      for index, row in enumerate(own[:num_sets])
    ]
    checked.append(np.reshape(rows, (num_sets, len(class_names))))
  _check_classes(checked, client_names, class_names, full_rank)
  return checked


def _check_classes(checked, client_names, class_names, full_rank) -> None:
  """Raises an error unless sets tell the classes apart."""
  somewhere = np.any([own.any(axis=0) for own in checked], axis=0)
  if not somewhere.all():
    name = class_names[int(np.argmin(somewhere))]
    raise ValueError(
      f'class {name!r} has a prior of 0 in every set of every client: leave '
      'the class out, or give priors above 0.'
    )
  for client, own in zip(client_names, checked, strict=True):
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
  """Returns the priors of one set, `float [d]`, divided by their sum.

  `what` says whose they are, for messages.
  """
  if not np.isfinite(row).all() or row.min() < 0:
    raise ValueError(
      f'{what}: the class priors {row.tolist()} are not all numbers of at '
      'least 0: correct them.'
    )
  # Sums of decimal fractions are not exact: .5 + .499 misses 1 by .001 too.
  if abs(row.sum() - 1) > ROW_TOLERANCE + _ROUNDING:
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

  Raises:
    ValueError: If `own` is no matrix of finite numbers, some of them above 0.
  """
  own = np.asarray(own, np.float64)
  if own.ndim != 2 or not np.isfinite(own).all() or not own.any():
    raise ValueError(
      f'class priors {own.tolist()} are no matrix of finite numbers with some '
      'above 0: give sets x classes.'
    )
  largest = float(1 / np.finfo(np.float64).eps)
  own = own[own.any(axis=1)][:, own.any(axis=0)]
  # Sets fewer than classes do not tell them apart, however different they are.
  if len(own) < own.shape[1]:
    return largest
  return float(min(np.linalg.cond(own), largest))
