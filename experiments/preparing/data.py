"""Reads the data of a run, and partitions and packs them.

Where their labels are, they say as well: a process is chosen by that
(`--process=recommended`). Neither TensorFlow nor pandas is imported until data
are packed.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterable

import numpy as np
from etils import epy

from datasets.partition import (
  client_labels,
  label_folds,
  partitions,
  resplit,
  unknown_classes,
)
from datasets.partition.assignment import Partition
from datasets.sources import catalogue
from datasets.sources.own import tables
from datasets.sources.source import UNKNOWN, Source
from experiments.artifacts import run_folder
from experiments.config.command_line import UsageError
from experiments.config.recommended import Found

with epy.lazy_imports():
  from datasets.records import partition_report, split_manifest
  from datasets.store import client_store
  from experiments.preparing import cohort, run_data


@functools.lru_cache(maxsize=1)
def _load(**content) -> Source:
  return catalogue.load(**content)


def forget() -> None:
  """Frees the memory of the data set that was read last."""
  _load.cache_clear()
  tables.forget()


def find_labels(settings) -> Found:
  """Reads the data of a run, and returns where their labels are."""
  return _found(_read_early(settings), settings.chosen['partition'])


def hides_labels(settings) -> bool:
  """Returns whether a run hides labels; reads data that may lack some."""
  if not settings.mask_ratio:
    return False
  may_lack_labels = settings.chosen['dataset'].may_lack_labels
  return not (
    may_lack_labels and _is_mask_idle(settings, _read_early(settings))
  )


def _read_early(settings) -> Source:
  """Returns the data set of a run whose flags are not settled yet."""
  try:
    with run_folder.cache_folder(settings.cache_dir):
      run_folder.check_files(settings)
      return read(settings)
  except (ValueError, TypeError, OSError) as error:
    raise UsageError(str(error)) from error


def read(settings) -> Source:
  """Returns the data set of a run; it stays in memory until `forget`."""
  options = settings.chosen['dataset'].options
  return _load(
    name=settings.dataset,
    data_dir=settings.data_dir,
    cache_dir=settings.cache_dir,
    **{name: getattr(settings, options[name].name) for name in options},
  )


def prepare(settings) -> run_data.RunData:
  """Loads, partitions and packs the data of a run.

  Raises:
    ValueError: If data are missing or the partition is impossible.
  """
  with run_folder.cache_folder(settings.cache_dir):
    source = _split(settings)
    forget()
    settings, notes = _with_known_labels(settings, source)
    source, partition, labels_at = _divided(settings, source)
    notes += _few_classes(settings, source, partition, labels_at)
    is_redrawn = settings.mask == client_labels.REDRAWN
    counts = partition_report.class_counts(
      source.training.labels[partition.examples],
      partition.owners,
      partition.num_clients,
      source.num_classes,
    )
    store = client_store.build(
      source, partition, cache_dir=settings.cache_dir, labelled=labels_at
    )
  return run_data.RunData(
    source,
    partition,
    store,
    counts,
    labels_at,
    redrawn_ratio=settings.mask_ratio if is_redrawn else None,
    is_of_user=settings.chosen['dataset'].is_of_user,
    notes=notes,
  )


def digest(settings) -> str:
  """Returns the digest of the partition that `prepare` would make.

  It tells the content of the data set, too, which stays in memory (`read`):
  the runs of a table ask for one after another.
  """
  with run_folder.cache_folder(settings.cache_dir):
    source = _split(settings)
  settings, _ = _with_known_labels(settings, source)
  _, partition, _ = _divided(settings, source)
  return partition.digest()


def _split(settings) -> Source:
  """Returns the data set, split as the run asks for."""
  source = read(settings)
  source = resplit.resplit(source, settings.split, settings.seed)
  source = unknown_classes.take_out(source, settings.unknown_classes)
  for name in ('server_examples', 'labelled_examples'):
    labels = getattr(settings, name)
    is_given = name == 'server_examples' and source.server
    if labels and labels < source.num_classes and not is_given:
      raise UsageError(
        f'--{name}={labels} is less than the {source.num_classes} classes of '
        f'{settings.dataset}: give at least one example of each.'
      )
  return source


def _with_known_labels(settings, source):
  """Returns settings without a mask that is idle; and what is said of it."""
  if not settings.mask_ratio or not _is_mask_idle(settings, source):
    return settings, ()
  unknown = _count_unknown(source)
  note = (
    f'Note: no label is hidden beside the {unknown:,} that the data lack; the '
    f'default --mask_ratio={settings.mask_ratio:g} is for data with all labels.'
  )
  without = {**vars(settings), 'mask': None, 'mask_ratio': None}
  return types.SimpleNamespace(**without), (note,)


def _is_mask_idle(settings, source) -> bool:
  """Returns whether a mask hides nothing, since the data lack labels anyway.

  Unless somebody asked for a mask.
  """
  is_default = settings.mask_ratio == settings.defaults.get('mask_ratio')
  return is_default and _count_unknown(source) > 0


def _few_classes(settings, source, partition, labels_at) -> tuple[str, ...]:
  """Returns a note where most clients hold too few classes for pseudo-labels.

  Of labels that clients know: how many pairs of one client are of one class.
  """
  if settings.min_coverage is None:
    return ()
  known = np.isin(
    partition.examples, split_manifest.known_to_clients(partition, labels_at)
  )
  owners = partition.owners[known]
  labels = source.training.labels[partition.examples[known]]

  def pairs(groups):
    _, sizes = np.unique(groups, axis=1, return_counts=True)
    return (sizes * (sizes - 1)).sum()

  alike = pairs(np.stack([owners, labels]))
  held = pairs(owners[None]) / alike if alike else source.num_classes
  if held >= settings.min_coverage * source.num_classes:
    return ()
  return (
    f'Note: a client holds {held:.1f} of {source.num_classes} classes in '
    f'effect, too few for --min_coverage={settings.min_coverage:g}: most train '
    'on their labels alone.',
  )


def _count_unknown(source) -> int:
  return np.count_nonzero(source.training.labels == UNKNOWN)


def _divided(settings, source) -> tuple[Source, Partition, str]:
  """Returns the data set, and its partition with what `_partition` returns.

  Where a fold of the labels is for validation, it is, and at nobody.
  """
  partition, labels_at = _partition(settings, source)
  if settings.label_fold is None:
    return source, partition, labels_at
  known = partition.server_indices
  if not len(known):
    known = split_manifest.known_to_clients(partition, labels_at)
  return (
    *label_folds.hold_out(source, partition, known, settings.label_fold),
    labels_at,
  )


def _partition(settings, source) -> tuple[Partition, str]:
  """Returns the partition, and whose labels training sees (`RunData`)."""
  is_fixed = settings.mask == client_labels.FIXED
  partition = partitions.build(
    settings.partition,
    source,
    seed=settings.seed,
    server_examples=settings.server_examples or 0,
    labelled_examples=settings.labelled_examples or 0,
    mask_ratio=settings.mask_ratio if is_fixed else None,
    shared_fraction=settings.shared_fraction,
    shared_share=settings.shared_share,
    unknown_share=settings.unknown_share,
    **{
      name: getattr(settings, name)
      for name in settings.chosen['partition'].setting_names
    },
  )
  cohort.check_has_clients(
    'gradient_diversity_clients', settings.gradient_diversity_clients, partition
  )
  labels_at = settings.chosen['process'].needs.labels_at
  if is_fixed:
    labels_at = split_manifest.DEALT
  labels = source.training.labels
  known = labels[partition.examples]
  if labels_at != split_manifest.AT_CLIENTS or (known != UNKNOWN).all():
    return partition, labels_at
  if settings.mask == client_labels.REDRAWN:
    client_labels.check_all_known(source.name, known, settings.mask_ratio)
  # Some labels are unknown to everyone: that is the mask of the data set.
  return client_labels.keep_known(partition, labels), split_manifest.DEALT


def _found(source: Source, partition) -> Found:
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
