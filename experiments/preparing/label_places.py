"""Where the labels of a user's own data are, for `--process=recommended`."""

import collections
from collections.abc import Iterable

from datasets.sources.source import UNKNOWN, Source
from experiments.artifacts import opening
from experiments.config.recommended import Found
from experiments.config.usage import UsageError
from experiments.preparing import reading


def find(settings) -> Found:
  """Reads the data of a run, and returns where their labels are.

  Args:
    settings: From `experiments.config.settings.make`, of any process.

  Raises:
    UsageError: If the data are missing or unusable.
  """
  try:
    with opening.cache_folder(settings.cache_dir):
      opening.check_files(settings)
      source = reading.read(**reading.content_of(settings))
  except (ValueError, OSError) as error:
    raise UsageError(str(error)) from error
  return of_source(source, settings.parts.partition)


def of_source(source: Source, partition) -> Found:
  """Returns where the labels of training examples are.

  Args:
    source: The data.
    partition: The `PartitionSpec`, which may use the owners of examples.
  """
  labels = source.train.labels
  known = int((labels != UNKNOWN).sum())
  server = 0 if source.server is None else len(source.server.labels)
  if not known:
    return Found(
      'server',
      f"The server's own {server:,} examples are labelled, and none of the "
      f'{len(labels):,} of clients',
    )
  has_owners = (
    partition.needs_client_ids and source.train.client_ids is not None
  )
  if known == len(labels) and not server and not has_owners:
    return Found(
      'server',
      f'All {known:,} training examples are labelled and the data or the '
      'partition name no owners, so the server takes --server_examples of them '
      'in a simulation',
    )
  told = (
    _of_owners(source.train)
    if has_owners
    else f'{known:,} of {len(labels):,} training examples that --partition='
    f'{partition.name} deals to clients are labelled'
  )
  place = 'all_clients' if known == len(labels) else 'clients'
  if not server:
    return Found(place, told)
  told += f", and so are the server's own {server:,}"
  if place == 'all_clients':
    return Found('server_and_clients', told)
  left_out = (
    f"the clients' {known:,}" if server > known else f"the server's {server:,}"
  )
  return Found(
    'server' if server > known else place,
    f'{told}; no process trains on both and on unlabelled examples, so '
    f'{left_out} labels are left out',
  )


def _of_owners(train) -> str:
  """Returns how many examples of each owner are labelled."""
  sizes = collections.Counter(train.client_ids.tolist())
  known = train.client_ids[train.labels != UNKNOWN].tolist()
  labelled = collections.Counter(dict.fromkeys(sizes, 0))
  labelled.update(known)
  clients = f'{len(sizes):,} client{"s" if len(sizes) > 1 else ""}'
  return (
    f'{clients}, each with {_range(labelled.values())} of '
    f'{_range(sizes.values())} examples labelled'
  )


def _range(numbers: Iterable[int]) -> str:
  low, high = min(numbers), max(numbers)
  return f'{low:,}' if low == high else f'{low:,} to {high:,}'
