"""Which labels clients know: a share of theirs, or some that the server had.

A mask hides the labels of a share of each client's examples, as in "Label
Hungry? Not Anymore: Towards Federated Semi-supervised Learning" (Hegde et al.),
whose code draws it anew in each epoch. One that is drawn once, as here, makes
the task harder.

Labels are dealt in appendix H of Zhang et al. (arXiv:2008.11364): the N_s
class-uniform labelled examples of the server belong to the clients there.
"""

import dataclasses
import heapq

import numpy as np

from datasets.partition import assignment
from datasets.partition.assignment import Assignment
from datasets.sources.source import UNKNOWN
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting, needs, unless

FIXED, REDRAWN = 'fixed', 'redrawn'


def hidden_share(labelled_fraction: float) -> float:
  """Returns the mask ratio that leaves this share in (0, 1] of the labels."""
  LABELLED_FRACTION.check(labelled_fraction)
  # 1 - 0.9 is a little less than 0.1; users mean 0.1.
  return round(1 - labelled_fraction, 12)


_SOME_LABELS = needs(
  'a process whose clients have labels of their own',
  'the process {process} does not use it, clients do not have all their labels',
  'labels_at',
  'clients',
)

MASK_RATIO = Setting(
  'mask_ratio',
  float,
  "The share of each client's labels that is hidden; each keeps at least one.",
  default=0.0,
  at_least=0,
  at_most=1,
  instead_of='labelled_fraction',
  used_when=(_SOME_LABELS,),
)
LABELLED_FRACTION = Setting(
  'labelled_fraction',
  float,
  "The share of each client's labels that is left: 1 - mask_ratio.",
  above=0,
  at_most=1,
  parse=hidden_share,
  instead_of=MASK_RATIO.name,
  used_when=(_SOME_LABELS,),
)
MASK = Setting(
  'mask',
  str,
  'Which labels are hidden: the same ones in the whole run (fixed), or others '
  'in every pass over the data (redrawn).',
  default=FIXED,
  choices=(FIXED, REDRAWN),
  used_when=(_SOME_LABELS, unless(MASK_RATIO.name, 0, 'hides no label')),
)
LABELLED_EXAMPLES = Setting(
  'labelled_examples',
  int,
  'N_s of a process without labels at the server: the number of labelled '
  'examples, which the clients get in equal shares.',
  default=100,
  at_least=0,
  used_when=(
    needs(
      'a process whose clients get some labelled examples',
      'the process {process} does not use it',
      'labels_at',
      'dealt',
    ),
  ),
)
_SHARED = (
  needs(
    'a process whose clients share some examples',
    'the process {process} does not use it',
    'shared_examples',
  ),
)
SHARED_FRACTION = Setting(
  'shared_fraction',
  float,
  'beta, the size of the set that clients share, over the number of all their '
  'other examples. It has equally many examples of each class.',
  default=0.05,
  above=0,
  at_most=10,
  used_when=_SHARED,
)
SHARED_SHARE = Setting(
  'shared_share',
  float,
  'alpha, the share of that set that a client gets, in (0, 1].',
  default=1.0,
  above=0,
  at_most=1,
  used_when=_SHARED,
)


def num_masked(n: np.ndarray | int, mask_ratio: float) -> np.ndarray:
  """Returns how many of n examples lose their label; one keeps it."""
  MASK_RATIO.check(mask_ratio)
  n = np.asarray(n, np.int64)
  # As the paper's code rounds.
  masked = np.minimum((float(mask_ratio) * n).astype(np.int64), n - 1)
  return np.maximum(masked, 0)


def mask_labels(held: Assignment, mask_ratio: float, seed: int) -> Assignment:
  """Hides labels of the clients' examples, the same ones for a whole run."""
  once = held  # An example in several sets counts once.
  if held.in_sets:
    owner = np.full(1 + held.examples.max(), assignment.NOBODY, np.int64)
    owner[held.examples] = held.owners
    once = assignment.from_owners(
      owner, held.client_names, held.server_indices, seed
    )
  # The shuffle does not depend on the ratio, so that a higher ratio hides all
  # labels that a lower one hides.
  rng = generator(Purpose.LABEL_MASKS, seed)
  shuffled = rng.permutation(len(once.examples))
  owners = once.owners[shuffled]
  hidden = num_masked(once.client_sizes, mask_ratio)
  # The first ones of each client in this order lose their label.
  keeps = assignment.turns(owners) >= hidden[owners]
  return dataclasses.replace(
    held, labelled_indices=np.sort(once.examples[shuffled[keeps]])
  )


def keep_known(held: Assignment, labels: np.ndarray) -> Assignment:
  """Lists as `labelled_indices` the clients' examples that have a label."""
  examples = np.unique(held.examples)
  known = examples[labels[examples] != UNKNOWN]
  if not len(known):
    raise ValueError(
      f"none of the clients' {len(examples):,} examples has a label: add "
      'labels to the training images, or choose a process that needs none at '
      'the clients.'
    )
  return dataclasses.replace(held, labelled_indices=known)


def check_all_known(name: str, labels: np.ndarray, mask_ratio: float) -> None:
  """Checks that the clients know all their labels, as a mask requires."""
  unknown = np.count_nonzero(labels == UNKNOWN)
  if unknown:
    raise ValueError(
      f'mask_ratio={mask_ratio} hides a share of the labels, but {unknown:,} '
      f"of the clients' images in source {name!r} have no label: give "
      '--mask_ratio=0 to train on the known labels.'
    )


def deal_server_set(
  held: Assignment, labels: np.ndarray, seed: int
) -> Assignment:
  """Assigns the server's examples to the clients, which know their labels.

  The clients take turns in a random order, class by class, so that each has N_s
  / K labelled examples, and N_{s,i} / K of class i, rounded up or down.
  """
  rng = generator(Purpose.LABELLED_CLIENTS, seed)
  labelled = held.server_indices[
    np.argsort(labels[held.server_indices], kind='stable')
  ]
  clients = rng.permutation(held.num_clients)
  owner = np.full(len(labels), assignment.NOBODY, np.int64)
  owner[held.examples] = held.owners
  owner[labelled] = clients[np.arange(len(labelled)) % held.num_clients]
  together = assignment.from_owners(
    owner, held.client_names, np.empty(0, np.int64), seed
  )
  return dataclasses.replace(together, labelled_indices=np.sort(labelled))


def label_own_examples(
  held: Assignment,
  labels: np.ndarray,
  num_classes: int,
  labelled_examples: int,
  seed: int,
) -> Assignment:
  """Labels some examples of clients that own their data (`labelled_indices`).

  Class by class, the next label goes to the client with the fewest so far that
  has an unlabelled example, so that labels are as even as the data allow.
  """
  rng = generator(Purpose.LABELLED_CLIENTS, seed)
  quotas = assignment.class_quotas(labelled_examples, num_classes, rng)
  shuffled = rng.permutation(len(held.examples))
  examples, owners = held.examples[shuffled], held.owners[shuffled]
  turn = rng.permutation(held.num_clients)
  given = np.zeros(held.num_clients, np.int64)
  labelled = []
  for label in rng.permutation(num_classes):
    members = np.flatnonzero(labels[examples] == label)
    if len(members) < quotas[label]:
      known = labels[examples]
      counts = np.bincount(known[known >= 0], minlength=num_classes)
      raise assignment.TooFewLabels(label, quotas, counts)
    own = {}
    for member in members:
      own.setdefault(int(owners[member]), []).append(int(examples[member]))
    queue = [(given[client], turn[client], client) for client in own]
    heapq.heapify(queue)
    for _ in range(quotas[label]):
      load, place, client = heapq.heappop(queue)
      labelled.append(own[client].pop())
      given[client] += 1
      if own[client]:
        heapq.heappush(queue, (load + 1, place, client))
  return dataclasses.replace(
    held, labelled_indices=np.sort(np.array(labelled, np.int64))
  )


def shared_set_size(
  num_examples: int, num_classes: int, shared_fraction: float
) -> int:
  """Returns |G|, as many of each class, rounded down, of all examples."""
  SHARED_FRACTION.check(shared_fraction)
  each = int(
    num_examples * shared_fraction / (1 + shared_fraction) / num_classes
  )
  if not each:
    raise ValueError(
      f'shared_fraction={shared_fraction} of {num_examples} examples is less '
      f'than one of each of {num_classes} classes: raise it.'
    )
  return each * num_classes


def share_server_set(
  held: Assignment, shared_share: float, seed: int
) -> Assignment:
  """Gives each client the random share alpha of the server's examples, G.

  Zhao et al. (arXiv:1806.00582, Section 4) take G, |G| = beta sum_k n_k, out of
  the data: D_k <- D_k + alpha G. That brings clients nearer to each other: R
  becomes R n / (n + alpha |G|), where all have n examples.
  """
  SHARED_SHARE.check(shared_share)
  shared = held.server_indices
  count = int(shared_share * len(shared))
  if not count:
    raise ValueError(
      f'shared_share={shared_share} of {len(shared)} shared examples is less '
      'than one: raise it.'
    )
  rng = generator(Purpose.SHARED_EXAMPLES, seed)
  parts = [
    rng.permutation(
      np.concatenate(
        [held.client_indices(client), rng.choice(shared, count, replace=False)]
      )
    )
    for client in range(held.num_clients)
  ]
  return dataclasses.replace(
    held,
    examples=np.concatenate(parts),
    offsets=np.cumsum([0, *map(len, parts)]),
  )
