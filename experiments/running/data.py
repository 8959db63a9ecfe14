"""From settings to data that a process can read, and what the run folder keeps.

Catalogue, partition and client store come from `datasets`; this is where a run
puts them together.
"""

import dataclasses

import numpy as np
import pandas as pd

from datasets.draws import label_masks
from datasets.partition import partitions
from datasets.partition.built_partition import Partition
from datasets.records import (
  label_mismatch,
  set_report,
  split_manifest,
  statistics,
)
from datasets.sources import catalogue
from datasets.sources.source import UNKNOWN, Source
from datasets.splits import resplit
from datasets.store import client_store
from experiments.artifacts import places, run_folder
from experiments.config import conflicts
from experiments.config.usage import UsageError


@dataclasses.dataclass(frozen=True)
class RunData:
  """The data of a run.

  Attributes:
    source: The data set.
    partition: Who has which examples.
    store: The packed client store.
    counts: `int64 [K, d]`, examples per client and known class.
    labels_at: Whose labels training sees, as in `ProcessSpec`; `'dealt'` with a
      fixed mask, or where some of the clients' examples have no label.
    redrawn_ratio: The share of labels that the process hides, others in every
      pass, or `None`.
  """

  source: Source
  partition: Partition
  store: client_store.ClientStore
  counts: np.ndarray
  labels_at: str
  redrawn_ratio: float | None = None

  @property
  def in_sets(self) -> bool:
    """Whether the clients' examples lie in sets."""
    return partitions.find(self.partition.name).in_sets

  def describe(self) -> dict[str, object]:
    """Returns what a report says of the data: sizes, classes, measured R.

    `labelled_client_examples` are those whose labels are seen at some time, and
    `min_labels`, `median_labels` and `max_labels`, where clients have only some
    of their labels, those that a client sees in one pass;
    `clients_without_labels` and `clients_without_unlabelled` train on what they
    have. `label_mismatch_...` are from `label_mismatch.Mismatch`, over the
    clients. Where examples lie in sets, figures of `set_report.describe` are
    among them.
    """
    summary = statistics.summary(self.counts, self.partition.client_sizes)
    if self.in_sets:
      summary.update(set_report.describe(self.partition))
    summary['server_examples'] = len(self.partition.server_indices)
    summary['labelled_client_examples'] = len(
      split_manifest.known_to_clients(self.partition, self.labels_at)
    )
    if self.labels_at == split_manifest.DEALT or self.redrawn_ratio:
      labels = split_manifest.labels_per_client(
        self.partition, self.labels_at, self.redrawn_ratio
      )
      summary['min_labels'] = int(labels.min())
      summary['median_labels'] = float(np.median(labels))
      summary['max_labels'] = int(labels.max())
      sizes = self.partition.client_sizes
      summary['clients_without_labels'] = int((labels == 0).sum())
      summary['clients_without_unlabelled'] = int((labels == sizes).sum())
    mismatch = self.mismatch()
    if mismatch is not None:
      summary.update(mismatch.describe())
    if self.source.validation is not None:
      summary['validation_examples'] = len(self.source.validation.labels)
    summary['test_examples'] = len(self.source.test.labels)
    return summary

  def mismatch(self) -> label_mismatch.Mismatch | None:
    """Returns how far the clients' labelled data are from their others.

    `None` where it is not the same examples all the time that have labels, or
    where nobody knows the class of some of the others.
    """
    partition = self.partition
    labels = self.source.train.labels[partition.examples]
    if self.labels_at != split_manifest.DEALT or (labels == UNKNOWN).any():
      return None
    return label_mismatch.of_examples(
      labels,
      partition.owners,
      np.isin(partition.examples, partition.labelled_indices),
      partition.num_clients,
      self.source.num_classes,
    )


def prepare(settings, spec) -> RunData:
  """Loads, partitions and packs the data of a run.

  Args:
    settings: From `experiments.config.settings.make`.
    spec: The process's `ProcessSpec`.

  Returns:
    The `RunData`.

  Raises:
    ValueError: If data are missing or the partition is impossible.
  """
  with places.cache_folder(settings.cache_dir):
    return _prepare(settings, spec)


def _prepare(settings, spec) -> RunData:
  source = catalogue.load(
    settings.dataset,
    data_dir=settings.data_dir,
    cache_dir=settings.cache_dir,
    **_options(settings),
  )
  source = resplit.resplit(source, settings.split, settings.seed)
  for name in ('server_examples', 'labelled_examples'):
    labels = getattr(settings, name)
    if labels and labels < source.num_classes:
      raise UsageError(
        f'--{name}={labels} is less than the {source.num_classes} classes of '
        f'{settings.dataset}: give at least one example of each.'
      )
  fixed = settings.mask == label_masks.FIXED
  redrawn = settings.mask == label_masks.REDRAWN
  partition = _partition(
    settings, source, settings.mask_ratio if fixed else None
  )
  for name in ('clients_per_round', 'gradient_diversity_clients'):
    clients = getattr(settings, name)
    if clients and clients > partition.num_clients:
      raise UsageError(
        f'--{name}={clients} is more than the {partition.num_clients} clients '
        f'of this partition: give --{name}={partition.num_clients} or less.'
      )
  labels_at = split_manifest.DEALT if fixed else spec.labels_at
  labels = source.train.labels
  if labels_at == split_manifest.AT_CLIENTS and (
    (labels[partition.examples] == UNKNOWN).any()
  ):
    if redrawn:
      label_masks.check_all_known(
        source.name, labels[partition.examples], settings.mask_ratio
      )
    # The labels that there are: the mask is the data's own.
    partition = label_masks.keep_known(partition, labels)
    labels_at = split_manifest.DEALT
  conflicts.check_has_unlabelled(
    settings.pretraining_images,
    redrawn or labels_at != split_manifest.AT_CLIENTS,
  )
  counts = statistics.class_counts(
    source.train.labels[partition.examples],
    partition.owners,
    partition.num_clients,
    source.num_classes,
  )
  store = client_store.build(
    source,
    partition,
    cache_dir=settings.cache_dir,
    labelled=labels_at,
  )
  return RunData(
    source,
    partition,
    store,
    counts,
    labels_at,
    redrawn_ratio=settings.mask_ratio if redrawn else None,
  )


def _partition(settings, source, mask_ratio) -> Partition:
  names = settings.parts.partition.setting_names
  return partitions.build(
    settings.partition,
    source,
    seed=settings.seed,
    server_examples=settings.server_examples or 0,
    labelled_examples=settings.labelled_examples or 0,
    mask_ratio=mask_ratio,
    **{name: getattr(settings, name) for name in names},
  )


def _options(settings) -> dict[str, object]:
  """The options of the data set, by the names of its loader."""
  return {
    option: getattr(settings, setting.name)
    for option, setting in settings.parts.source.options.items()
  }


def write_records(data: RunData, folder) -> None:
  """Writes what a run folder keeps of the data: who has what, and labels."""
  split_manifest.write(
    data.partition,
    folder.path / 'split.json',
    folder.path / 'split.npz',
    labels_at=data.labels_at,
    redrawn_ratio=data.redrawn_ratio,
  )
  if data.counts.any():
    statistics.plot_partition(
      data.counts,
      folder.path / 'partition.png',
      f'{data.source.name}, {data.partition.name}: '
      f'R = {statistics.noniid_r(data.counts):.3f}',
    )
  if data.in_sets:
    set_report.plot_priors(
      data.partition,
      folder.path / 'class_priors.png',
      f'{data.source.name}, {data.partition.name}',
    )
  mismatch = data.mismatch()
  if mismatch is not None:
    table = pd.DataFrame(
      {
        'labelled': mismatch.labelled.sum(axis=1),
        'unlabelled': mismatch.unlabelled.sum(axis=1),
        'kl': mismatch.kl,
        'total_variation': mismatch.total_variation,
      }
    )
    run_folder.write_durably(
      folder.path / 'label_mismatch.csv',
      table.to_csv(index_label='client').encode(),
    )
