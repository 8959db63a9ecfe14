"""Clients whose share of each class is drawn from a Dirichlet distribution.

Hsu et al. 2019, "Measuring the Effects of Non-Identical Data Distribution for
Federated Visual Classification" (arXiv:1909.06335), in the form of Li et al.
2022, "Federated Learning on Non-IID Data Silos: An Experimental Study"
(arXiv:2102.02079, section 4.1): per class over the clients.
"""

import dataclasses

import numpy as np

from datasets.draws import assignment
from datasets.partition.partition_spec import PartitionSpec
from datasets.sources.source import Source
from tff_ssl.common.setting import Setting

MAX_DRAWS = 1000

NUM_CLIENTS = dataclasses.replace(assignment.NUM_CLIENTS, default=100)
DIRICHLET_ALPHA = Setting(
  'dirichlet_alpha',
  float,
  'alpha, the concentration of the Dirichlet distribution; small is uneven.',
  default=0.5,
  # Below this range, NumPy's draw for few clients does not end. Above it, the
  # shares are equal to six digits.
  at_least=1e-3,
  at_most=1e6,
)
MIN_CLIENT_EXAMPLES = Setting(
  'min_client_examples',
  int,
  'The least number of examples of a client.',
  # Li et al. 2022.
  default=10,
  at_least=0,
)


def dirichlet_partition(
  source: Source,
  *,
  num_clients: int,
  dirichlet_alpha: float,
  min_client_examples: int = MIN_CLIENT_EXAMPLES.default,
  server_examples: int,
  seed: int,
) -> assignment.Assignment:
  """Splits examples between a server and K clients at concentration alpha.

  The server takes N_s examples, equally many of each class. Of what is left,
  client k receives the share p_{j,k} of class j, with
  `(p_{j,1}, ..., p_{j,K}) ~ Dir(alpha, ..., alpha)` drawn for each class on its
  own. Small alpha gives a class to few clients, large alpha to all alike; sizes
  differ as well. All shares are drawn anew until each client has
  `min_client_examples`.

  Numbers are rounded so that every example is given exactly once.
  """
  labels, num_classes = source.train.labels, source.num_classes
  server = assignment.draw_server_set(
    labels, num_classes, server_examples, seed
  )
  sizes = np.bincount(np.delete(labels, server), minlength=num_classes)
  if num_clients * max(min_client_examples, 1) > sizes.sum():
    raise ValueError(
      f'num_clients={num_clients} with min_client_examples='
      f'{min_client_examples} needs more than the {sizes.sum()} examples that '
      f'server_examples={server_examples} leaves: lower one of them.'
    )
  rng = assignment.generator(seed, assignment.Purpose.CLIENT_EXAMPLES)
  concentration = np.full(num_clients, dirichlet_alpha)
  for _ in range(MAX_DRAWS):
    shares = rng.dirichlet(concentration, size=num_classes)
    counts = _whole_counts(sizes, shares)
    if counts.sum(axis=0).min() >= min_client_examples:
      break
  else:
    raise ValueError(
      f'dirichlet_alpha={dirichlet_alpha} left a client with fewer than '
      f'min_client_examples={min_client_examples} in each of {MAX_DRAWS} '
      f'draws for {num_clients} clients: raise dirichlet_alpha, or lower '
      'min_client_examples or num_clients.'
    )
  return assignment.deal(labels, server, counts.T, rng, seed)


def _whole_counts(sizes, shares):
  """Rounds `sizes * shares` to `int64 [d, K]` with the row sums `sizes`."""
  edges = np.rint(sizes[:, np.newaxis] * np.cumsum(shares, axis=1))
  # The shares' sum is 1 but for rounding.
  edges[:, -1] = sizes
  return np.diff(edges.astype(np.int64), axis=1, prepend=0)


SPEC = PartitionSpec(
  name='dirichlet',
  summary='shares of each class from Dir(alpha)',
  build=dirichlet_partition,
  settings=(NUM_CLIENTS, DIRICHLET_ALPHA, MIN_CLIENT_EXAMPLES),
  needs_labels=lambda settings: True,
)
