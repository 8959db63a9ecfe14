"""Assigns test examples to clients that have none of their own.

FedUL measures errors in this way (Section 4): "the test data are uniformly
sampled from all classes" at each client, and errors are means over clients.
"""

import numpy as np

from datasets.draws import assignment


def assign_evenly(
  labels: np.ndarray, num_classes: int, num_clients: int, seed: int
) -> np.ndarray:
  """Divides the test examples of each class equally among the clients.

  Args:
    labels: `int [N]`, the class of each test example.
    num_classes: d.
    num_clients: C.
    seed: Fixes the assignment; at least 0.

  Returns:
    `int64 [N]`, the client of each example. For each class, the numbers of
    examples of two clients differ by at most one.

  Raises:
    ValueError: If a class has fewer examples than there are clients.
  """
  counts = np.bincount(labels, minlength=num_classes)
  if counts.min() < num_clients:
    raise ValueError(
      f'num_clients={num_clients}: class {np.argmin(counts)} has '
      f'{counts.min()} test examples, not one for each client: lower the '
      'number of clients, or do not evaluate per client.'
    )
  rng = assignment.generator(seed, assignment.Purpose.TEST_OWNERS)
  owner = np.empty(len(labels), np.int64)
  for label in range(num_classes):
    members = rng.permutation(np.flatnonzero(labels == label))
    owner[members] = np.arange(len(members)) % num_clients
  return owner
