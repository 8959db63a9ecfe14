"""What a run trains on: its figures, and the records that its folder keeps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from sklearn.utils import class_weight

from datasets.partition.assignment import Partition
from datasets.records import partition_report, split_manifest
from datasets.sources.source import UNKNOWN, Source
from datasets.store.client_store import ClientStore
from experiments.artifacts import csv_files, run_folder
from experiments.config.command_line import UsageError


@dataclasses.dataclass(frozen=True)
class RunData:
  """The data of a run.

  Attributes:
    source: The data set.
    partition: Who has which examples.
    store: The packed client store.
    counts: `int64 [K, d]`, examples per client and known class.
    labels_at: Whose labels training sees, as in `Needs`; `'dealt'` with a
      fixed mask, or where some of the clients' examples have no label.
    redrawn_ratio: The share of labels that the process hides, drawn anew in
      each pass; `None` where it hides none.
    is_of_user: Whether the files are a user's own.
    notes: Sentences on what the run took otherwise than its settings say.
  """

  source: Source
  partition: Partition
  store: ClientStore
  counts: np.ndarray
  labels_at: str
  redrawn_ratio: float | None = None
  is_of_user: bool = False
  notes: tuple[str, ...] = ()

  def digests(self) -> dict[str, str]:
    """Returns the SHA-256 of what must stay as it is, by what it is."""
    if not self.is_of_user:
      return {'who has which examples': self.partition.digest()}
    # Files that are written otherwise hold the same.
    partition = dataclasses.replace(self.partition, source_version='')
    return {
      **self.source.digests(),
      'who has which examples': partition.digest(),
    }

  def describe(self) -> dict[str, object]:
    """Returns the figures that a report gives of the data.

    They are sizes, classes, the measured R, and:

    - `labelled_client_examples`: examples whose labels some pass sees.
    - `training_labels`: those that the training examples have;
      `unused_labels`: those of them that no pass sees.
    - `held_out_clients` and `held_out_examples`: the owners held out for the
      server, and those of their examples that nobody has.
    - `min_labels`, `median_labels` and `max_labels`, where clients have only
      some of their labels: the number that a client sees in one pass.
    - `clients_without_labels` and `clients_without_unlabelled`, likewise: the
      number of clients that train on one kind of examples alone.
    - `label_mismatch_...`: of `partition_report.mismatch_of`, over the clients.
    - those of `partition_report.describe_sets`, where examples lie in sets.
    - `unknown_class_examples`: those of the clients whose class is none of the
      server's, where `unknown_classes` makes some unknown.
    """
    summary = partition_report.summary(self.counts, self.partition.client_sizes)
    if self.partition.in_sets:
      summary.update(partition_report.describe_sets(self.partition))
    if 'unknown_share' in self.partition.arguments:
      summary['unknown_class_examples'] = (
        summary['examples'] - summary['examples_of_known_class']
      )
    summary['server_examples'] = len(self.partition.server_indices)
    seen = split_manifest.known_to_clients(self.partition, self.labels_at)
    summary['labelled_client_examples'] = len(seen)
    known = self.source.training.labels != UNKNOWN
    summary['training_labels'] = int(known.sum())
    known[np.concatenate([self.partition.server_indices, seen])] = False
    summary['unused_labels'] = int(known.sum())
    summary['held_out_clients'] = len(self.partition.held_out_client_names)
    summary['held_out_examples'] = partition_report.unused_of_held_out(
      self.source, self.partition
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
    if mismatch is not None and mismatch['total_variation'].notna().any():
      distances = mismatch['total_variation']
      summary['label_mismatch_tv_mean'] = float(distances.mean())
      summary['label_mismatch_tv_max'] = float(distances.max())
    if self.source.validation is not None:
      summary['validation_examples'] = len(self.source.validation.labels)
    summary['test_examples'] = len(self.source.test.labels)
    return summary

  @property
  def hidden_from_clients(self) -> np.ndarray:
    """`int64 [n]`, their examples whose label the data hold and hide from them.

    Where labels are hidden anew in each pass, each example is unlabelled in
    some pass.
    """
    examples = np.unique(self.partition.examples)
    if self.redrawn_ratio is None:
      examples = np.setdiff1d(
        examples,
        split_manifest.known_to_clients(self.partition, self.labels_at),
      )
    return examples[self.source.training.labels[examples] != UNKNOWN]

  def balanced_class_weights(self) -> tuple[float, ...]:
    """Returns scikit-learn's balanced weights of the labels in training.

    They are those of the server, where it has some, and those that clients see.

    Raises:
      UsageError: If a class has no label.
    """
    known = split_manifest.known_to_clients(self.partition, self.labels_at)
    labels = self.source.training.labels[
      np.union1d(self.partition.server_indices, known)
    ]
    classes = np.arange(self.source.num_classes)
    missing = np.setdiff1d(classes, labels)
    if missing.size:
      raise UsageError(
        '--class_weights=balanced needs labels of each class in training, '
        f'and {self.source.class_names[missing[0]]!r} has none: give numbers.'
      )
    weights = class_weight.compute_class_weight(
      'balanced', classes=classes, y=labels
    )
    return tuple(weights.tolist())

  def mismatch(self) -> pd.DataFrame | None:
    """Returns how far clients' labelled data are from their unlabelled data.

    `None` where the labelled examples change between passes, or where the class
    of some unlabelled example is unknown.
    """
    partition = self.partition
    labels = self.source.training.labels[partition.examples]
    if self.labels_at != split_manifest.DEALT or (labels == UNKNOWN).any():
      return None
    shown = np.isin(partition.examples, partition.labelled_indices)
    labelled = partition_report.class_counts(
      labels[shown],
      partition.owners[shown],
      partition.num_clients,
      self.source.num_classes,
    )
    unlabelled = self.counts - labelled
    return pd.DataFrame(
      {
        'labelled': labelled.sum(axis=1),
        'unlabelled': unlabelled.sum(axis=1),
        'total_variation': partition_report.mismatch_of(labelled, unlabelled),
      }
    )


def write_records(data: RunData, folder) -> None:
  """Writes the records of the data: partition and labels."""
  split_manifest.write(
    data.partition,
    folder.path / 'split.json',
    folder.path / 'split.npz',
    labels_at=data.labels_at,
    redrawn_ratio=data.redrawn_ratio,
  )
  if data.counts.any():
    table = pd.DataFrame(
      data.counts,
      index=data.partition.client_names,
      columns=data.source.class_names,
    )
    path = folder.path / run_folder.PARTITION
    csv_files.write_table(table, path, index_label='client')
  mismatch = data.mismatch()
  if mismatch is not None:
    path = folder.path / 'label_mismatch.csv'
    csv_files.write_table(mismatch, path, index_label='client')
