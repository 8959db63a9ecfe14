"""Clients as they are: each owner of examples is one client."""

import numpy as np

from datasets import assignment
from datasets.source import UNKNOWN

SPREAD = 'spread'
HELD_OUT = 'held_out'
EVERYONE = 'everyone'
SERVER_WRITERS = (SPREAD, HELD_OUT, EVERYONE)
# Of this many owners one is held out, at most, unless the labels need more.
_OWNERS_PER_HELD_OUT = 10


def native_partition(
  client_ids: np.ndarray,
  labels: np.ndarray,
  num_classes: int,
  *,
  server_examples: int,
  seed: int,
  server_writers: str = SPREAD,
  num_clients: int | None = None,
) -> assignment.Assignment:
  """Splits examples by owner, and draws a class-uniform server set.

  Args:
    client_ids: `[N]`, the owner of each example: any Python strings.
    labels: `int [N]`, the class of each example, or -1 where nobody knows it.
    num_classes: d.
    server_examples: N_s. Where it is not divisible by d, the remainder goes to
      classes drawn by the seed, one example each.
    seed: Fixes the split.
    server_writers: Whose examples the server's are.
      `'spread'`: those of owners who never take part. There are as many of
      them as a class has labels, so that each label of a class can come from
      another owner, but at most a tenth of all owners (rounded up), since the
      clients lose all that these hold. More are held out only where these lack
      examples of a class. They are drawn at random among owners with labels,
      and each class is drawn from them in turn.
      `'held_out'`: also those of owners who never take part, but of as few as a
      random order gives: one after another, each who has an example of a class
      that is still short. Often a single owner has them all. The committed
      results on native clients were made by this rule.
      `'everyone'`: any owner's, who then holds them no more.
      What the server does not take of a held-out owner is unused.
    num_clients: If given, a random subset of this many of the remaining owners
      takes part, and the others' examples are unused.

  Returns:
    The assignment, with clients sorted by id (by code point).

  Raises:
    ValueError: If a class has too few examples, or there are fewer owners left
      than `num_clients` or than one.
    TypeError: If a client id is not a string.
  """
  names, owner = _owners(client_ids)
  rng = assignment.generator(seed, assignment.Purpose.SERVER_SET)
  quotas = assignment.class_quotas(server_examples, num_classes, rng)
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
    labels,
    candidates,
    quotas,
    rng,
    owner if server_writers == SPREAD else None,
  )

  kept = np.setdiff1d(np.arange(len(names)), held_out)
  if num_clients is not None:
    if num_clients > len(kept):
      raise ValueError(
        f'num_clients={num_clients} is more than the {len(kept)} clients there '
        f'are beside {len(held_out)} held out for the server: lower it.'
      )
    rng = assignment.generator(seed, assignment.Purpose.CLIENT_SUBSET)
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


def _owners(client_ids):
  """The sorted ids, and for each example the index of its owner's."""
  ids = client_ids.tolist()
  for client_id in ids:
    if not isinstance(client_id, str):
      raise TypeError(
        f'client_ids holds {client_id!r} of type {type(client_id).__name__}: '
        'give strings.'
      )
  # Not np.unique: numpy's own strings lose trailing NULs.
  names = sorted(set(ids))
  index = {name: position for position, name in enumerate(names)}
  return names, np.array([index[client_id] for client_id in ids], np.int64)


def _writers_for(quotas, at_least, labels, owner, num_owners, seed):
  """Owners who together have the quota of each class, `int64 [n]`.

  Of a random order, the first `at_least` who have any label that is asked for,
  and behind them those who have one that is still short.
  """
  num_classes = len(quotas)
  known = labels != UNKNOWN
  counts = np.bincount(
    owner[known] * num_classes + labels[known],
    minlength=num_owners * num_classes,
  ).reshape(num_owners, num_classes)
  rng = assignment.generator(seed, assignment.Purpose.HELD_OUT_WRITERS)
  missing = quotas.copy()
  writers = []
  for writer in rng.permutation(num_owners):
    wanted = quotas if len(writers) < at_least else missing
    if np.minimum(counts[writer], wanted).any():
      writers.append(writer)
      missing -= np.minimum(counts[writer], missing)
  # Where all writers together are too few, draw_class_uniform says which class.
  return np.array(writers, np.int64)
