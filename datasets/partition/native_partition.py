"""The natural partition: each owner of examples is one client.

In the pooled one, a single client owns all data: central training.
"""

import dataclasses

import numpy as np

from datasets.partition import assignment
from datasets.partition.assignment import PartitionSpec
from datasets.sources.source import UNKNOWN, Source
from tff_ssl.common.randomness import Purpose, generator
from tff_ssl.common.setting import Setting

SPREAD = 'spread'
HELD_OUT = 'held_out'
EVERYONE = 'everyone'
# At most one owner in so many is held out, unless the labels need more.
_OWNERS_PER_HELD_OUT = 10

NUM_CLIENTS = dataclasses.replace(
  assignment.NUM_CLIENTS,
  help='K, the number of clients; by default all owners.',
  optional=True,
)
SERVER_WRITERS = Setting(
  'server_writers',
  str,
  'Whose examples the server takes. Those of owners who then never take part: '
  'of as many owners as a class has labels, at most a tenth of all unless that '
  'gives too few labels (spread), or of as few owners as possible (held_out). '
  'Or those of all owners, who take part, too (everyone).',
  default=SPREAD,
  choices=(SPREAD, HELD_OUT, EVERYONE),
  used_when=(assignment.at_server,),
  needed_by="a user's own data with few owners",
)


def native_partition(
  source: Source,
  *,
  server_examples: int,
  seed: int,
  server_writers: str = SPREAD,
  num_clients: int | None = None,
) -> assignment.Assignment:
  """Splits examples by owner, and draws a class-uniform server set.

  `SERVER_WRITERS` says whose examples the server gets. With `'spread'`, each
  label of a class can come from another owner, and owners take turns in each
  class. With `'held_out'`, often a single owner has all examples; the committed
  results on native clients were made so. With `num_clients`, a random subset of
  the remaining owners takes part. Clients are sorted by id.
  """
  labels = source.train.labels
  names, owner = _owners(source.train.client_ids)
  rng = generator(Purpose.SERVER_SET, seed)
  quotas = assignment.class_quotas(server_examples, source.num_classes, rng)
  if server_writers == EVERYONE:
    held_out = np.empty(0, np.int64)
    candidates = np.arange(len(labels))
  else:
    at_least = 0
    if server_writers == SPREAD:
      # Rounded up.
      share = -(-len(names) // _OWNERS_PER_HELD_OUT)
      at_least = min(quotas.max(), share)
    held_out = _writers_for(quotas, at_least, labels, owner, len(names), seed)
    candidates = np.flatnonzero(np.isin(owner, held_out))
  server = assignment.draw_class_uniform(
    labels, candidates, quotas, rng, owner if server_writers == SPREAD else None
  )

  kept = np.setdiff1d(np.arange(len(names)), held_out)
  if num_clients is not None:
    if num_clients > len(kept):
      raise ValueError(
        f'num_clients={num_clients} is more than the {len(kept)} clients there '
        f'are beside {len(held_out)} held out for the server: lower it.'
      )
    rng = generator(Purpose.CLIENT_SUBSET, seed)
    kept = np.sort(rng.permutation(kept)[:num_clients])
  if not len(kept):
    raise ValueError(
      f'server_examples={server_examples} holds out all {len(names)} clients: '
      "lower it, or choose server_writers='everyone'."
    )
  new_index = np.full(len(names), assignment.NOBODY, np.int64)
  new_index[kept] = np.arange(len(kept))
  client = new_index[owner]
  client[server] = assignment.NOBODY
  return assignment.from_owners(
    client,
    tuple(names[index] for index in kept),
    server,
    seed,
    tuple(names[index] for index in np.sort(held_out)),
  )


def pooled_partition(
  source: Source, *, server_examples: int, seed: int
) -> assignment.Assignment:
  """Assigns to one client all examples beside a class-uniform server set."""
  labels = source.train.labels
  server = assignment.draw_server_set(
    labels, source.num_classes, server_examples, seed
  )
  owner = np.zeros(len(labels), np.int64)
  owner[server] = assignment.NOBODY
  return assignment.from_owners(
    owner, assignment.numbered_names(1), server, seed
  )


def _owners(client_ids):
  """Returns the sorted ids, and the index of each example's owner in them."""
  # Hashing is faster than `np.unique`, which sorts strings, and NumPy's own
  # strings lose trailing NULs.
  ids = client_ids.tolist()
  names = sorted(set(ids))
  number = {name: index for index, name in enumerate(names)}
  return names, np.array([number[name] for name in ids], np.int64)


def _writers_for(quotas, at_least, labels, owner, num_owners, seed):
  """Returns owners, drawn at random, who together have the quotas."""
  num_classes = len(quotas)
  known = labels != UNKNOWN
  counts = np.zeros((num_owners, num_classes), np.int64)
  np.add.at(counts, (owner[known], labels[known]), 1)
  rng = generator(Purpose.HELD_OUT_WRITERS, seed)
  missing = quotas.copy()
  writers = []
  for writer in rng.permutation(num_owners):
    # Then only those with a label that is still short.
    wanted = quotas if len(writers) < at_least else missing
    if np.minimum(counts[writer], wanted).any():
      writers.append(writer)
      missing -= np.minimum(counts[writer], missing)
  # If all writers together lack examples, draw_class_uniform names the class.
  return np.array(writers, np.int64)


SPEC = PartitionSpec(
  name='native',
  description='each owner of examples is one client',
  builder=native_partition,
  settings=(NUM_CLIENTS, SERVER_WRITERS),
  needs_client_ids=True,
  server_settings=(SERVER_WRITERS.name,),
  # A data set's default number is meant for artificial clients.
  derive=lambda values, given: {NUM_CLIENTS.name: None},
)
POOLED = PartitionSpec(
  name='pooled',
  description='one client with all the data',
  builder=pooled_partition,
  # A single client takes part, so there is nothing to average.
  derive=lambda values, given: {'clients_per_round': 1, 'num_groups': 1},
)
