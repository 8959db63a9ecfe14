"""The data set that was read last, and where its labels are.

A process is chosen by its labels (`--process=recommended`), the runs of a table
are compared with it, and a run trains on it. Nothing here imports TensorFlow.
"""

import collections
import functools
from collections.abc import Iterable

from datasets.sources import catalogue
from datasets.sources.own import tables
from datasets.sources.source import UNKNOWN, Source
from experiments.artifacts import opening
from experiments.config.recommended import Found
from experiments.config.usage import UsageError


@functools.lru_cache(maxsize=1)
def read(**content) -> Source:
  """Returns what `catalogue.load` does; it stays in memory until `forget`."""
  return catalogue.load(**content)


def content_of(settings) -> dict[str, object]:
  """Returns the arguments of `read` for a run."""
  options = settings.chosen['dataset'].options
  return {
    'name': settings.dataset,
    'data_dir': settings.data_dir,
    'cache_dir': settings.cache_dir,
    **{name: getattr(settings, options[name].name) for name in options},
  }


def forget() -> None:
  """Frees the memory of the data set that was read last."""
  read.cache_clear()
  tables.forget()


def find_labels(settings) -> Found:
  """Reads the data of a run, and returns where their labels are."""
  try:
    with opening.cache_folder(settings.cache_dir):
      opening.check_files(settings)
      source = read(**content_of(settings))
  except (ValueError, TypeError, OSError) as error:
    raise UsageError(str(error)) from error
  return _of_source(source, settings.chosen['partition'])


def _of_source(source: Source, partition) -> Found:
  """Returns where the labels are; the partition may use owners."""
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
