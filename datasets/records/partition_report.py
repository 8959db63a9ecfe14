"""What a run says of its partition: numbers, the metric R, sentences.

R is Definition 2, Eq. 2 of Zhang et al. (arXiv:2008.11364). How far a client's
labelled data are from its unlabelled data is class-distribution mismatch (Fig.
3 of FedLabel, Cho et al., "Local or Global: Selective Knowledge Assimilation
for Federated Learning with Limited Labels"), which names no distance; here is
that of R.
"""

from collections.abc import Iterator

import numpy as np

from datasets.partition import native_partition, partitions
from datasets.partition.assignment import Partition
from datasets.sources.source import UNKNOWN, Source
from tff_ssl.common import prior_checks

# With fewer labels of a class, the result depends on which ones are drawn.
FEW_LABELS = 5
# From this share of the owners on, much data is lost with those held out.
_MANY_HELD_OUT = 0.25


def class_counts(
  labels: np.ndarray,
  client_index: np.ndarray,
  num_clients: int,
  num_classes: int,
) -> np.ndarray:
  """Counts the examples of each known class at each client, `int64 [K, d]`."""
  known = labels != UNKNOWN
  flat = np.bincount(
    client_index[known] * num_classes + labels[known],
    minlength=num_clients * num_classes,
  )
  return flat.reshape(num_clients, num_classes)


def noniid_r(counts: np.ndarray) -> float:
  """Returns the degree R of class-distribution skew, Eq. 2 of the paper.

  R is the mean over all pairs of clients of the total variation distance
  between their class distributions: 0 when all are equal, 1 when no two share a
  class. Clients without examples are left out.
  """
  sizes = counts.sum(axis=1)
  distributions = counts[sizes > 0] / sizes[sizes > 0, np.newaxis]
  num_clients = len(distributions)
  if num_clients < 2:
    return 0.0
  ascending = np.sort(distributions, axis=0)
  # The weights sum to zero, so the smallest value may be taken off first; equal
  # clients then give exactly 0.
  ascending -= ascending[0]
  weights = 2.0 * np.arange(num_clients) - (num_clients - 1)
  total = np.sum(weights @ ascending)
  return float(np.clip(total / (num_clients * (num_clients - 1)), 0.0, 1.0))


def summary(
  counts: np.ndarray, sizes: np.ndarray | None = None
) -> dict[str, int | float | None]:
  """Describes a partition by `counts`, `[K, d]`, examples of each class.

  `sizes` are the examples of each client, `[K]`, if some of unknown class are
  not among `counts`; `measured_r` is `None` if all are.
  """
  if not len(counts):
    raise ValueError('counts has no row: give at least one client.')
  known = counts.sum(axis=1)
  sizes = known if sizes is None else sizes
  return {
    'clients': len(counts),
    'examples': int(sizes.sum()),
    'min_examples': int(sizes.min()),
    'median_examples': float(np.median(sizes)),
    'max_examples': int(sizes.max()),
    'classes': int(np.count_nonzero(counts.sum(axis=0))),
    'examples_of_known_class': int(known.sum()),
    'measured_r': noniid_r(counts) if known.any() else None,
  }


def mismatch_of(labelled: np.ndarray, unlabelled: np.ndarray) -> np.ndarray:
  """Returns how far the classes of labelled and unlabelled examples are apart.

  It is the total variation, in [0, 1], of the shares of the classes in counts
  `[K, d]`; NaN for a client without one of the two.
  """
  distances = np.full(len(labelled), np.nan)
  defined = labelled.any(axis=1) & unlabelled.any(axis=1)
  of_each = (
    counts[defined] / counts[defined].sum(axis=1, keepdims=True)
    for counts in (labelled, unlabelled)
  )
  distances[defined] = np.abs(np.subtract(*of_each)).sum(axis=1) / 2
  return distances


def lines(source: Source, partition: Partition) -> list[str]:
  """Returns sentences on the partition and on the server's labels."""
  said = [_choice(source, partition)]
  if len(partition.server_indices):
    said += _server_labels(source, partition)
  if partition.held_out_client_names:
    said.append(_held_out(source, partition))
  if 'unknown_share' in partition.arguments:
    said.append(_unknown(source, partition))
  return said


def _unknown(source, partition) -> str:
  """Says how many examples are of classes that the server does not have."""
  is_unknown = source.training.labels[partition.examples] == UNKNOWN
  of_clients = np.bincount(
    partition.owners, is_unknown, minlength=partition.num_clients
  )
  shares = of_clients / np.maximum(partition.client_sizes, 1)
  return (
    f"{is_unknown.sum():,} of the clients' {is_unknown.size:,} examples, "
    f'{shares.min():.0%} to {shares.max():.0%} of those of a client, are of '
    'classes that the server does not have (--unknown_classes); no accuracy '
    'counts them.'
  )


def unused_of_held_out(source: Source, partition: Partition) -> int:
  """Returns how many examples of the owners held out nobody has."""
  names = set(partition.held_out_client_names)
  if not names:
    return 0
  ids = source.train.client_ids.tolist()
  return sum(map(names.__contains__, ids)) - len(partition.server_indices)


def _choice(source, partition) -> str:
  """Says which partition it is, why, and how to choose another."""
  spec = partitions.PARTITIONS.find(partition.name)
  text = f'Partition {partition.name}: {spec.description}.'
  if source.train.client_ids is None:
    return text
  if not spec.needs_client_ids:
    return (
      f'{text} The owners that the data name (client_ids) are not used; '
      '--partition=native makes each of them a client.'
    )
  ids = source.train.client_ids.tolist()
  there_are = len(set(ids)) - len(partition.held_out_client_names)
  if partition.num_clients < there_are:
    taken = np.union1d(partition.examples, partition.server_indices)
    unused = len(ids) - np.count_nonzero(taken < len(ids))
    unused -= unused_of_held_out(source, partition)
    text += (
      f' {partition.num_clients:,} of {there_are:,} take part (--num_clients); '
      f'the {unused:,} examples of the others are not used.'
    )
  return (
    f'{text} The data say who owns each example (client_ids); --partition=r '
    'makes up other clients.'
  )


def _server_labels(source, partition) -> Iterator[str]:
  """Says how many labels of each class the server has, and their origin."""
  server = partition.server_indices
  counts = np.bincount(
    source.training.labels[server], minlength=source.num_classes
  )
  least, most = counts.min(), counts.max()
  each = f'{least}' if least == most else f'{least} to {most}'
  yield (
    f'The server has {len(server):,} labels, {each} of each of the '
    f'{source.num_classes} classes, {_origin(source, partition)}.'
  )
  if least < FEW_LABELS:
    flag = '--shared_fraction' if partition.is_shared else '--server_examples'
    yield (
      f'Warning: the server has fewer than {FEW_LABELS} labels of a class, so '
      'the result depends strongly on which examples the seed draws; raise '
      f'{flag}.'
    )
  if partition.is_shared:
    share = partition.arguments['shared_share']
    yield (
      f'Each client holds copies of {share:.0%} of them beside its own '
      'examples.'
    )


def _origin(source, partition) -> str:
  if source.server:
    return 'those that the data give to the server'
  server_writers = partition.arguments.get(native_partition.SERVER_WRITERS.name)
  if server_writers is None:
    return 'drawn from the pool of all training examples'
  ids = source.train.client_ids
  givers = len({*ids[partition.server_indices].tolist()})
  text = f'from {givers:,} of {len({*ids.tolist()}):,} clients'
  if server_writers == native_partition.EVERYONE:
    return f'{text}, which keep their other examples'
  return text


def _held_out(source, partition) -> str:
  """Says how many owners the server's labels cost; warns of many."""
  held_out = len(partition.held_out_client_names)
  owners = len({*source.train.client_ids.tolist()})
  text = (
    f'{held_out:,} of {owners:,} clients {"are" if held_out > 1 else "is"} '
    'held out for the server (--server_writers): '
    f'{unused_of_held_out(source, partition):,} other examples of theirs are '
    'not used'
  )
  if held_out == 1:
    text += '; --server_writers=everyone draws the labels from all clients'
  elif held_out >= _MANY_HELD_OUT * owners:
    text = f'Warning: {text}; lower --server_examples, or give '
    text += '--server_writers=everyone'
  return f'{text}.'


def describe_sets(partition: Partition) -> dict[str, object]:
  """Describes the sets of a partition in numbers."""
  sizes = partition.set_sizes
  sizes = sizes[sizes > 0]
  is_absent = ~partition.class_priors.any(axis=1)
  return {
    'sets_of_each_client': partition.num_sets.tolist(),
    'min_set_examples': int(sizes.min()),
    'median_set_examples': float(np.median(sizes)),
    'max_set_examples': int(sizes.max()),
    'different_examples': len(np.unique(partition.examples)),
    'condition_numbers': [
      prior_checks.condition_number(own) for own in partition.class_priors
    ],
    'absent_classes': is_absent.sum(axis=1).tolist(),
  }


def lines_of_sets(partition: Partition) -> list[str]:
  """Returns the sentences that a run prints on its sets, with warnings."""
  facts = describe_sets(partition)
  numbers, conditions = facts['sets_of_each_client'], facts['condition_numbers']
  few, many = min(numbers), max(numbers)
  said = [
    f'{few if few == many else f"{few} to {many}"} sets at each client with '
    f'{facts["min_set_examples"]}/{facts["median_set_examples"]:g}/'
    f'{facts["max_set_examples"]} examples (min/median/max), condition numbers '
    f'of the class priors {min(conditions):.3g} to {max(conditions):.3g}.'
  ]
  worst = int(np.argmax(conditions))
  if conditions[worst] >= prior_checks.CLOSE_TO_SINGULAR:
    said.append(
      f'Warning: the class priors of {partition.client_names[worst]!r} are '
      f'close to singular (condition number {conditions[worst]:.3g}, of '
      f'{prior_checks.CLOSE_TO_SINGULAR:g} or more): small errors in them '
      'mislead the classifier; sets whose priors differ more help.'
    )
  noise = partition.arguments.get('prior_noise')
  if noise:
    said.append(
      'Note: these are condition numbers of priors with noise '
      f'(prior_noise={noise:g}). The true priors may be closer to singular.'
    )
  absent = np.argwhere(~partition.class_priors.any(axis=1))
  if len(absent):
    clients = len(np.unique(absent[:, 0]))
    said.append(
      f'Note: {clients} clients have no example of some class (the first: '
      f'{partition.client_names[absent[0, 0]]!r}, class {absent[0, 1]}). Their '
      'condition numbers leave it out; their data say nothing about it.'
    )
  return said
