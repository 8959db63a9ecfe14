"""Gives the few labelled examples to the clients instead of the server.

This is the label-at-client setting in appendix H of Zhang et al., "Improving
Semi-supervised Federated Learning by Reducing the Gradient Diversity of
Models" (arXiv:2008.11364). The N_s class-uniform labelled examples of the
server belong to the clients there.
"""

import dataclasses
import heapq

import numpy as np

from datasets.draws import assignment
from tff_ssl.setting import Setting, needs_process

LABELLED_EXAMPLES = Setting(
  'labelled_examples',
  int,
  'N_s of a process without labels at the server: the number of labelled '
  'examples, which the clients get in equal shares.',
  default=100,
  at_least=0,
  used_when=(
    needs_process(
      'labels_at',
      value='dealt',
      words='a process whose clients get some labelled examples',
    ),
  ),
)


def deal_server_set(
  held: assignment.Assignment, labels: np.ndarray, seed: int
) -> assignment.Assignment:
  """Assigns the server's examples to the clients, which know their labels.

  The clients take turns in a random order, class by class. Each one receives
  N_s / K labelled examples, and N_{s,i} / K of class i, both rounded up or
  down. It keeps its other examples. The server has none then.
  """
  rng = assignment.generator(seed, assignment.Purpose.LABELLED_CLIENTS)
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
  held: assignment.Assignment,
  labels: np.ndarray,
  num_classes: int,
  labelled_examples: int,
  seed: int,
) -> assignment.Assignment:
  """Labels some examples of clients that own their data (`labelled_indices`).

  The examples of an owner cannot move to another client. So each class is
  labelled in turn, one example at a time. The next label goes to the client
  with the fewest labels so far that has an unlabelled example of the class. The
  labels are as even as the clients' data allow. `class_quotas` divides their
  number among the classes.

  Raises:
    TooFewLabels: If the clients have too few examples of a class.
  """
  rng = assignment.generator(seed, assignment.Purpose.LABELLED_CLIENTS)
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
