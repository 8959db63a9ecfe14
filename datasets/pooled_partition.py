"""One client with everything: central training."""

import numpy as np

from datasets import assignment


def pooled_partition(
  labels: np.ndarray, num_classes: int, *, server_examples: int, seed: int
) -> assignment.Assignment:
  """Gives one client everything that a class-uniform server set leaves.

  Args:
    labels: `int [N]`, the class of each example, or -1 where nobody knows it.
    num_classes: d.
    server_examples: N_s; a remainder as in `r_partition`.
    seed: Fixes the split.

  Raises:
    ValueError: If a class has too few examples, or nothing is left.
  """
  server = assignment.draw_server_set(
    labels, num_classes, server_examples, seed
  )
  owner = np.zeros(len(labels), np.int64)
  owner[server] = assignment.NOBODY
  return assignment.from_owners(
    owner, assignment.numbered_names(1), server, seed
  )
