"""Tiny U-sets of real digits: clients that know of classes only their shares.

Set m of a client holds digits of class m, of which those of class 0 to 9 come
in three passes: what the second pass brings lies two sets further. So the
matrix of class counts [12, 10] is lower triangular, and class priors have full
column rank, for every client with a whole pass; from the second pass on classes
are mixed, from the third on the mixed sets are uneven.
"""

import collections

import numpy as np

NUM_SETS = 12
_SHIFT = 2


def in_passes(labels: np.ndarray, size: int) -> np.ndarray:
  """Returns an order of examples that brings each class once in each pass.

  Args:
    labels: Classes `int [n]`, of 0 to d - 1.
    size: Length of the order; a class that runs out starts anew.

  Returns:
    Indices `int [size]`.
  """
  num_classes = labels.max() + 1
  passes = -(-size // num_classes)
  by_class = [
    np.resize(np.flatnonzero(labels == label), passes)
    for label in range(num_classes)
  ]
  return np.stack(by_class, axis=1).ravel()[:size]


def set_indices(labels: np.ndarray, num_classes: int) -> np.ndarray:
  """Returns the set of each of a client's examples.

  Args:
    labels: Classes `int [n]` in the order of `in_passes`, n <= 3 d.
    num_classes: d.

  Returns:
    `int32 [n]`, in [0, NUM_SETS).
  """
  is_second = np.arange(len(labels)) // num_classes == 1
  return (labels + _SHIFT * is_second).astype(np.int32)


def count_sets(
  sets: np.ndarray, labels: np.ndarray, num_classes: int
) -> collections.OrderedDict[str, np.ndarray]:
  """Returns what a client's context says of its sets, counted exactly.

  Args:
    sets: The set of each example, `int32 [n]`.
    labels: Its class, `int32 [n]`.
    num_classes: d.

  Returns:
    `class_priors`, `float32 [NUM_SETS, d]`, and `set_shares`, `float32
    [NUM_SETS]`; zeros for sets without examples.
  """
  counts = np.zeros((NUM_SETS, num_classes), np.float32)
  np.add.at(counts, (sets, labels), 1)
  sizes = counts.sum(axis=1)
  return collections.OrderedDict(
    class_priors=counts / np.maximum(sizes, 1)[:, np.newaxis],
    set_shares=sizes / max(len(sets), 1),
  )
