"""What a run prints about its partition and about the server's labels.

`statistics` counts the clients' examples. `set_report` describes the class
priors of sets.
"""

import numpy as np

from datasets.partition import native_partition, partitions
from datasets.partition.built_partition import Partition
from datasets.sources.source import Source

# With fewer labels of a class, the result depends on which ones are drawn.
FEW_LABELS = 5
# From this share of the owners on, much data is lost with those held out.
_MANY_HELD_OUT = 0.25


def lines(source: Source, partition: Partition) -> list[str]:
  """Returns sentences on the partition and on the server's labels.

  Args:
    source: The data.
    partition: The partition of the data.
  """
  return [_choice(source, partition), *_server_labels(source, partition)]


def unused_of_held_out(source: Source, partition: Partition) -> int:
  """Returns how many examples of the owners held out nobody has.

  Args:
    source: The data.
    partition: The partition of the data.
  """
  names = set(partition.held_out_client_names)
  if not names:
    return 0
  ids = source.train.client_ids.tolist()
  return sum(map(names.__contains__, ids)) - len(partition.server_indices)


def _choice(source, partition) -> str:
  """Says which partition it is, why, and how to choose another."""
  has_owners = source.training.client_ids is not None
  spec = partitions.find(partition.name)
  text = f'Partition {partition.name}: {spec.summary}'
  if spec.needs_client_ids:
    return (
      f'{text}.{_participants(source, partition)} The data say who owns each '
      'example (client_ids); --partition=r makes up other clients.'
    )
  if has_owners:
    return (
      f'{text}. The owners that the data name (client_ids) are not used; '
      '--partition=native makes each of them a client.'
    )
  return f'{text}.'


def _participants(source, partition) -> str:
  """Says how many owners are clients if --num_clients leaves some out."""
  held_out = len(partition.held_out_client_names)
  ids = source.train.client_ids.tolist()
  there_are = len(set(ids)) - held_out
  if partition.num_clients == there_are:
    return ''
  taken = np.union1d(partition.examples, partition.server_indices)
  unused = len(ids) - np.count_nonzero(taken < len(ids))
  unused -= unused_of_held_out(source, partition)
  return (
    f' {partition.num_clients:,} of {there_are:,} take part (--num_clients); '
    f'the {unused:,} examples of the others are not used.'
  )


def _server_labels(source, partition) -> list[str]:
  """Says how many labels of each class the server has, and their origin."""
  server = partition.server_indices
  if not len(server):
    return []
  counts = np.bincount(
    source.training.labels[server], minlength=source.num_classes
  )
  least, most = counts.min(), counts.max()
  each = f'{least}' if least == most else f'{least} to {most}'
  found = [
    f'The server has {len(server):,} labels, {each} of each of the '
    f'{source.num_classes} classes, {_origin(source, partition)}.'
  ]
  if least < FEW_LABELS:
    flag = '--shared_fraction' if partition.is_shared else '--server_examples'
    found.append(
      f'Warning: the server has fewer than {FEW_LABELS} labels of a class, so '
      'the result depends strongly on which examples the seed draws; raise '
      f'{flag}.'
    )
  if partition.is_shared:
    share = partition.arguments['shared_share']
    found.append(
      f'Each client holds copies of {share:.0%} of them beside its own '
      'examples.'
    )
  return found + _held_out(source, partition)


def _held_out(source, partition) -> list[str]:
  """Says how many owners the server's labels cost; warns of many."""
  held_out = len(partition.held_out_client_names)
  if not held_out:
    return []
  owners = len(set(source.train.client_ids.tolist()))
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
  return [f'{text}.']


def _origin(source, partition) -> str:
  if source.server:
    return 'those that the data give to the server'
  server_writers = partition.arguments.get(native_partition.SERVER_WRITERS.name)
  if server_writers is None:
    return 'drawn from the pool of all training examples'
  ids = source.training.client_ids
  givers = len(set(ids[partition.server_indices].tolist()))
  text = f'from {givers:,} of {len(set(ids.tolist())):,} clients'
  if server_writers == native_partition.EVERYONE:
    return f'{text}, which keep their other examples'
  return text
