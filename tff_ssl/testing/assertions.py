"""What the checks assert about states, weights and metrics."""

from typing import Any

import numpy as np
from etils import epy

with epy.lazy_imports():
  import tensorflow_federated as tff

  from tff_ssl import compat

# What another order of summation may change.
TOLERANCE = 1e-6


def require(condition: bool, promise: str) -> None:
  """Raises `AssertionError` with the broken promise unless it holds."""
  if not condition:
    raise AssertionError(promise)


def _leaves(structure) -> list[np.ndarray]:
  # In the order of the TFF type; `tf.nest` would sort the keys of a dict, and
  # so tell a named tuple from the ordered dict that another runtime returns.
  container = compat.from_container((structure,), recursive=True)
  return [np.asarray(leaf) for leaf in tff.structure.flatten(container)]


def is_equal(actual: Any, expected: Any) -> bool:
  """Whether two structures are bit-equal, NaN equal to NaN."""
  leaves, expected_leaves = _leaves(actual), _leaves(expected)
  if len(leaves) != len(expected_leaves):
    return False
  pairs = list(zip(leaves, expected_leaves, strict=True))
  return all(
    a.dtype == b.dtype
    and np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating))
    for a, b in pairs
  )


def require_equal(actual: Any, expected: Any, promise: str) -> None:
  """Raises `AssertionError` unless two structures are bit-equal."""
  if not is_equal(actual, expected):
    difference = largest_difference(actual, expected)
    raise AssertionError(f'{promise} Largest difference: {difference:g}.')


def require_close(actual: Any, expected: Any, promise: str) -> None:
  """Raises `AssertionError` where values differ by more than `TOLERANCE`."""
  difference = largest_difference(actual, expected)
  # Not `>`, which NaN would pass.
  if not difference <= TOLERANCE:
    raise AssertionError(f'{promise} Largest difference: {difference:g}.')


def is_finite(structure: Any) -> bool:
  """Whether all floats are finite."""
  # Not all leaves are numbers: a private mean keeps the names of its events.
  floats = [leaf for leaf in _leaves(structure) if leaf.dtype.kind == 'f']
  return all(np.isfinite(leaf).all() for leaf in floats)


def require_finite(structure: Any, promise: str) -> None:
  """Raises `AssertionError` unless all floats are finite."""
  require(is_finite(structure), promise)


def largest_difference(actual: Any, expected: Any) -> float:
  """Returns the largest |actual - expected|.

  Two NaN differ by 0, one NaN and a number by NaN. Unequal strings, shapes and
  numbers of leaves differ infinitely.
  """
  leaves, expected_leaves = _leaves(actual), _leaves(expected)
  shapes = [leaf.shape for leaf in leaves]
  # NumPy would broadcast a scalar to any shape.
  if shapes != [leaf.shape for leaf in expected_leaves]:
    return np.inf
  largest = 0.0
  for a, b in zip(leaves, expected_leaves, strict=True):
    if a.dtype.kind not in 'fiub':
      largest = max(largest, 0.0 if np.array_equal(a, b) else np.inf)
      continue
    a, b = a.astype(np.float64), b.astype(np.float64)
    gaps = np.where(np.isnan(a) & np.isnan(b), 0.0, np.abs(a - b))
    largest = max(largest, float(np.max(gaps, initial=0.0)))
    if np.isnan(gaps).any():
      return float('nan')
  return largest
