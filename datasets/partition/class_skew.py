"""Clients whose classes differ: by the non-iidness R, or by a Dirichlet draw.

`r`: Zhang et al., "Improving Semi-supervised Federated Learning by Reducing the
Gradient Diversity of Models" (arXiv:2008.11364), Definition 2, appendix A.2.

`dirichlet`: Hsu et al. 2019, "Measuring the Effects of Non-Identical Data
Distribution for Federated Visual Classification" (arXiv:1909.06335), in the
form of Li et al. 2022, "Federated Learning on Non-IID Data Silos: An
Experimental Study" (arXiv:2102.02079, section 4.1): per class over the clients.
"""

import dataclasses

import numpy as np

from datasets.partition import assignment
from datasets.partition.assignment import Assignment, PartitionSpec
from datasets.sources.source import UNKNOWN, Source
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting

_MAX_DRAWS = 1000

NUM_CLIENTS = dataclasses.replace(assignment.NUM_CLIENTS, default=100)
NONIID_R = Setting(
  'noniid_r',
  float,
  'R, by how much clients of different main classes differ: from 0, iid, to 1, '
  'where each has its main class alone.',
  default=0.4,
  at_least=0,
  at_most=1,
)
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
  needed_by='Li et al. (arXiv 2102.02079)',
)


def r_partition(
  source: Source,
  *,
  num_clients: int,
  noniid_r: float,
  server_examples: int,
  seed: int,
) -> Assignment:
  """Splits examples between a server and K clients at non-iidness R.

  The server takes N_s examples, equally many of each class. Of what is left,
  class j has n_j examples, a share `q_j = n_j / sum(n)`. With K >= d, class j
  is the main class of m_j clients, and each of them receives of class i (Eq. 9)

      N_{j,i} = n_i R [i = j] / m_j  +  n_i q_j (1 - R) / m_j,

  which are the class shares `R [i = j] + q_i (1 - R)` (Eq. 10): clients of
  different main classes are at the total variation distance R, others at 0. The
  mean over all pairs (Definition 2) is slightly below R then, `R (1 - sum_j m_j
  (m_j - 1) / (K (K - 1)))`.

  The paper leaves K < d open. Here the classes are divided among the clients,
  and client k with the main classes S_k, whose share is Q_k, receives of class
  i

      N_{k,i} = n_i R [i in S_k]  +  n_i Q_k (1 - R),

  so that any two clients are at the distance R. The paper leaves the m_j open
  as well. Here they make the clients' sizes as equal as whole numbers allow.

  Every example is given exactly once, and each N_{j,i} is off by less than one.
  So clients with few examples deviate: 470 clients of 200 images in 47 classes
  have .04 for R = 0, and .42 for .4. The authors' code rounds down and drops
  the leftovers, and for K = 470 it cuts each of 47 clients in ten by shuffling,
  which raises R from .4 to about .57.

  Where images have no label (-1), R must be 0: all that the server leaves is
  then split at random into K equal parts.
  """
  labels, num_classes = source.train.labels, source.num_classes
  server = assignment.draw_server_set(
    labels, num_classes, server_examples, seed
  )
  if np.any(labels == UNKNOWN):
    # As a single class: Eq. 9 at R = 0 gives each client 1 / K of it.
    labels, num_classes = np.zeros_like(labels), 1
  sizes = np.bincount(np.delete(labels, server), minlength=num_classes)
  if not sizes.all():
    raise ValueError(
      f'server_examples={server_examples} leaves no example of class '
      f'{np.argmin(sizes)} to the clients: lower server_examples, or choose '
      'another partition than r.'
    )
  if num_clients > sizes.sum():
    raise ValueError(
      f'num_clients={num_clients} is more than the {sizes.sum()} examples that '
      f'server_examples={server_examples} leaves: lower num_clients.'
    )
  counts = _whole_counts(sizes, _shares(sizes, num_clients, noniid_r))
  rng = generator(Purpose.CLIENT_EXAMPLES, seed)
  return assignment.deal(labels, server, counts, rng, seed)


def _shares(sizes, num_clients, noniid_r):
  """Returns the share of each class that each client receives, `[K, d]`."""
  mains = _main_classes(sizes, num_clients)
  holders = mains.sum(axis=0)
  client_sizes = mains @ (sizes / holders)
  common = (client_sizes / sizes.sum())[:, np.newaxis]
  return noniid_r * mains / holders + (1 - noniid_r) * common


def _main_classes(sizes, num_clients):
  """Returns which classes are a client's main ones, `bool [K, d]`."""
  num_classes = len(sizes)
  if num_clients >= num_classes:
    holders = np.ones(num_classes, np.int64)
    for _ in range(num_clients - num_classes):
      holders[np.argmax(sizes / np.sqrt(holders * (holders + 1)))] += 1
    return np.repeat(np.eye(num_classes, dtype=bool), holders, axis=0)
  mains = np.zeros((num_clients, num_classes), bool)
  for label in np.argsort(-sizes, kind='stable'):
    mains[np.argmin(mains @ sizes), label] = True
  return mains


def _whole_counts(sizes, shares):
  """Rounds `sizes * shares` to whole numbers with the column sums `sizes`."""
  num_classes = len(sizes)
  # Cumulative rounding assigns every example once. Without the offsets, equal
  # classes would all be rounded up for the same clients, and the clients' sizes
  # would differ by up to d. The offsets keep a distance from 0 and 1 that is
  # larger than the error of the cumulative sum.
  offsets = (np.arange(num_classes) + 0.5) / num_classes
  edges = np.floor(sizes * np.cumsum(shares, axis=0) + offsets)
  return np.diff(edges.astype(np.int64), axis=0, prepend=0)


def dirichlet_partition(
  source: Source,
  *,
  num_clients: int,
  dirichlet_alpha: float,
  min_client_examples: int = MIN_CLIENT_EXAMPLES.default,
  server_examples: int,
  seed: int,
) -> Assignment:
  """Splits examples between a server and K clients at concentration alpha.

  The server takes N_s examples, equally many of each class. Of what is left,
  client k receives the share p_{j,k} of class j, with `(p_{j,1}, ..., p_{j,K})
  ~ Dir(alpha, ..., alpha)` drawn for each class on its own, and all anew until
  each client has `min_client_examples`.
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
  rng = generator(Purpose.CLIENT_EXAMPLES, seed)
  concentration = np.full(num_clients, dirichlet_alpha)
  for _ in range(_MAX_DRAWS):
    shares = rng.dirichlet(concentration, size=num_classes)
    counts = _rounded(sizes, shares)
    if counts.sum(axis=0).min() >= min_client_examples:
      break
  else:
    raise ValueError(
      f'dirichlet_alpha={dirichlet_alpha} left a client with fewer than '
      f'min_client_examples={min_client_examples} in each of {_MAX_DRAWS} '
      f'draws for {num_clients} clients: raise dirichlet_alpha, or lower '
      'min_client_examples or num_clients.'
    )
  return assignment.deal(labels, server, counts.T, rng, seed)


def _rounded(sizes, shares):
  """Rounds `sizes * shares` to `int64 [d, K]` with the row sums `sizes`."""
  edges = np.rint(sizes[:, np.newaxis] * np.cumsum(shares, axis=1))
  # The shares' sum is 1 but for rounding.
  edges[:, -1] = sizes
  return np.diff(edges.astype(np.int64), axis=1, prepend=0)


R = PartitionSpec(
  name='r',
  description='clients of a chosen non-iidness R',
  builder=r_partition,
  settings=(NUM_CLIENTS, NONIID_R),
  needs_labels=lambda settings: bool(settings.get(NONIID_R.name)),
)
DIRICHLET = PartitionSpec(
  name='dirichlet',
  description='shares of each class from Dir(alpha)',
  builder=dirichlet_partition,
  settings=(NUM_CLIENTS, DIRICHLET_ALPHA, MIN_CLIENT_EXAMPLES),
  needs_labels=lambda settings: True,
)
