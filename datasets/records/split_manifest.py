"""The record of a partition in a run folder: split.json and split.npz.

split.json is for people and scripts; split.npz holds the indices into the
source's training split. Loading checks one against the other.
"""

import json
import os
import stat
import zipfile

import numpy as np

from datasets.files import npz_files
from datasets.partition import client_labels
from datasets.partition.assignment import INDICES, OF_SETS, Partition
from datasets.partition.client_labels import FIXED, REDRAWN
from tff_ssl.common import whole_files

FORMAT = 2
AT_SERVER = 'server'
AT_CLIENTS = 'clients'
DEALT = 'dealt'
IN_SETS = 'sets'
_LABELS_AT = (AT_SERVER, AT_CLIENTS, DEALT, IN_SETS)


def check_labels_at(argument: str, value: str, partition: Partition):
  """Checks that a partition fits `value`, the choice of who sees labels."""
  if value not in _LABELS_AT:
    raise ValueError(
      f'{argument}={value!r} is unknown: choose one of {list(_LABELS_AT)}.'
    )
  if value == IN_SETS and not partition.in_sets:
    raise ValueError(
      f'{argument}={value!r} does not fit partition {partition.name!r}, which '
      'has no sets: choose --partition=u_sets.'
    )
  labelled = len(partition.labelled_indices)
  if (value == DEALT) != bool(labelled):
    raise ValueError(
      f'{argument}={value!r} does not fit a partition with {labelled} labelled '
      'examples at clients: labelled_examples and mask_ratio go with '
      f'{DEALT!r} alone.'
    )


def known_to_clients(partition: Partition, labels_at: str) -> np.ndarray:
  """Returns the clients' examples whose labels they may see, each one once."""
  return {
    AT_SERVER: partition.examples[:0],
    AT_CLIENTS: np.unique(partition.examples),
    DEALT: partition.labelled_indices,
    IN_SETS: partition.examples[:0],
  }[labels_at]


def labels_per_client(
  partition: Partition, labels_at: str, redrawn_ratio: float | None = None
) -> np.ndarray:
  """Returns how many labels each client sees in one epoch, `int64 [K]`."""
  known = known_to_clients(partition, labels_at)
  counts = np.bincount(
    partition.owners[np.isin(partition.examples, known)],
    minlength=partition.num_clients,
  )
  if redrawn_ratio is not None:
    counts = counts - client_labels.num_masked(counts, redrawn_ratio)
  return counts


def describe(
  partition: Partition, *, labels_at: str, redrawn_ratio: float | None = None
) -> dict:
  """Returns the content of split.json: JSON types only, no indices.

  Args:
    labels_at: Which labels of the clients are visible: `'server'` (none),
      `'clients'` (all), `'dealt'` (`labelled_indices`) or `'sets'` (none;
      clients see the sets of their examples).
    redrawn_ratio: The share of each client's labels that the process hides,
      others in each epoch, or `None`. `labelled` counts all of them.
  """
  check_labels_at('labels_at', labels_at, partition)
  if redrawn_ratio is not None and labels_at != AT_CLIENTS:
    raise ValueError(
      f'redrawn_ratio={redrawn_ratio} does not fit labels_at={labels_at!r}: a '
      f'redrawn mask goes with {AT_CLIENTS!r} alone.'
    )
  sizes = partition.client_sizes
  server, clients = len(partition.server_indices), len(partition.examples)
  known = known_to_clients(partition, labels_at)
  unlabelled = np.setdiff1d(partition.examples, known)
  return {
    'format': FORMAT,
    'source': {
      'name': partition.source_name,
      'version': partition.source_version,
      'train_examples': partition.num_train,
    },
    'partition': partition.name,
    'seed': partition.seed,
    'arguments': dict(partition.arguments),
    'examples': {
      'server': server,
      'clients': clients,
      'unused': partition.num_train
      - len(np.union1d(partition.server_indices, partition.examples)),
      'smallest_client': int(sizes.min()),
      'largest_client': int(sizes.max()),
    },
    'labels': {
      'labels_at': labels_at,
      'labelled': len(np.union1d(partition.server_indices, known)),
      'unlabelled': len(unlabelled),
      'labelled_also_in_unlabelled': bool(
        np.isin(partition.server_indices, unlabelled).any()
      ),
      **_mask(partition, redrawn_ratio),
    },
    **_sets(partition),
    'num_clients': partition.num_clients,
    'client_names': list(partition.client_names),
    'held_out_client_names': list(partition.held_out_client_names),
    'sha256': partition.digest(),
  }


def _sets(partition) -> dict[str, dict]:
  """Describes the sets; returns an empty dict if there are none."""
  if not partition.in_sets:
    return {}
  sizes = partition.set_sizes
  return {
    'sets': {
      'sets_of_each_client': partition.num_sets.tolist(),
      'examples_of_each_set': [own[own > 0].tolist() for own in sizes],
      'different_examples': len(np.unique(partition.examples)),
      'classes': partition.class_priors.shape[2],
    }
  }


def _mask(partition, redrawn_ratio) -> dict[str, str | float | int]:
  """Describes the label mask; returns an empty dict if there is none."""
  if redrawn_ratio is not None:
    in_a_pass = labels_per_client(partition, AT_CLIENTS, redrawn_ratio)
    return {
      'mask': REDRAWN,
      'mask_ratio': redrawn_ratio,
      'labelled_at_clients_in_a_pass': int(in_a_pass.sum()),
    }
  if 'mask_ratio' in partition.arguments:
    return {'mask': FIXED, 'mask_ratio': partition.arguments['mask_ratio']}
  return {}


def write(
  partition: Partition,
  path_json: str | os.PathLike,
  path_npz: str | os.PathLike,
  *,
  labels_at: str,
  redrawn_ratio: float | None = None,
):
  """Writes `describe` and the arrays; equal partitions give equal bytes."""
  description = describe(
    partition, labels_at=labels_at, redrawn_ratio=redrawn_ratio
  )
  text = json.dumps(description, indent=2) + '\n'
  with whole_files.replacing(path_npz) as file:
    npz_files.write(file, partition.arrays, zipfile.ZIP_DEFLATED)
  with whole_files.replacing(path_json) as file:
    file.write(text.encode('ascii'))


def load(
  path_json: str | os.PathLike, path_npz: str | os.PathLike
) -> tuple[Partition, dict]:
  """Reads the files of `write`: the partition, and its description."""
  for path in (path_json, path_npz):
    if not stat.S_ISREG(os.stat(path).st_mode):
      raise _damaged(path_json, path_npz)
  with open(path_json, 'rb') as file:
    text = file.read()
  try:
    description = json.loads(text)
    names = (*INDICES, *OF_SETS) if 'sets' in description else INDICES
    file = npz_files.NpzFile(os.fspath(path_npz), 'restore it')
    npz_files.check_sizes([file])
    # `Partition` checks their forms.
    arrays = file.read(names, lambda headers: None, ignores_others=True)
    partition = Partition(
      **arrays,
      name=description['partition'],
      source_name=description['source']['name'],
      source_version=description['source']['version'],
      num_train=description['source']['train_examples'],
      seed=description['seed'],
      arguments=description['arguments'],
      client_names=tuple(description['client_names']),
      held_out_client_names=tuple(description['held_out_client_names']),
    )
    labels = description['labels']
    rewritten = describe(
      partition,
      labels_at=labels['labels_at'],
      redrawn_ratio=(
        labels['mask_ratio'] if labels.get('mask') == REDRAWN else None
      ),
    )
  except (
    *(ValueError, TypeError, LookupError),
    RecursionError,  # Lists in lists, a thousand deep.
  ) as error:
    raise _damaged(path_json, path_npz) from error
  if rewritten != description:
    raise _damaged(path_json, path_npz)
  return partition, description


def _damaged(path_json, path_npz):
  return ValueError(
    f'{os.fspath(path_json)} and {os.fspath(path_npz)} are damaged or do not '
    'belong together: restore both, or write the partition anew.'
  )
