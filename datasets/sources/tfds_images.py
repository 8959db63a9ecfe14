"""Image sets of TensorFlow Datasets, read into memory as a whole.

With a data directory, the prepared set is read from `<data_dir>/tfds/<tfds
name>/<version>/`, and nothing is downloaded. Without one, TFDS uses its default
directory and may download the set.

STL-10's images without labels join the training split as `UNKNOWN`.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from datasets.files import downloads
from datasets.sources.source import (
  LARGE_CLIENTS,
  SMALL_CLIENTS,
  UNKNOWN,
  Source,
  SourceSpec,
  Split,
)


@dataclasses.dataclass(frozen=True)
class TfdsImages:
  """A data set of TFDS.

  Attributes:
    tfds_name: Name of the set in TFDS, with its config.
    mirrorable: Whether a mirrored image keeps its class. A digit or a letter
      does not. The grouping paper's code nevertheless mirrors SVHN and EMNIST;
      `--augment_flip` does so, too.
    public_examples: Numbers of training examples (with unlabelled ones) and of
      test examples in the public set.
    defaults: What settings are on these data.
    transposed: Whether TFDS stores rows and columns exchanged.
    train_split: The expression by which TFDS reads the training split.
  """

  name: str
  title: str
  tfds_name: str
  num_classes: int
  input_shape: tuple[int, int, int]
  mean: tuple[float, ...]
  stddev: tuple[float, ...]
  mirrorable: bool
  public_examples: tuple[int, int]
  defaults: Mapping[str, Any]
  transposed: bool = False
  train_split: str = 'train'


# The papers normalise MNIST and EMNIST with the constants of MNIST, and
# CIFAR-10 and SVHN with those of CIFAR-10. They give none for STL-10. Most of
# its classes are those of CIFAR-10, so it has the same constants.
_INK = ((0.1307,), (0.3081,))
_PHOTO = ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))

# Where TFDS looks for prepared sets.
_READY_SETS = 'https://storage.googleapis.com/tfds-data'

_PHOTOS = {
  **LARGE_CLIENTS,
  'num_clients': 10,
  'server_examples': 1000,
  'labelled_examples': 1000,
}
_OF_EMNIST = {
  **LARGE_CLIENTS,
  'model': 'emnist_cnn',
  'num_clients': 47,
  'server_examples': 4700,
  'labelled_examples': 4700,
  # As many as classes.
  'sets_per_client': '47',
}
_OF_MNIST = {
  **SMALL_CLIENTS,
  'partition': 'r',
  'num_clients': 600,
  'noniid_r': 0.4,
  'labelled_examples': 3000,
  'total_rounds': 150,
}
_OF_CIFAR100 = {
  **_PHOTOS,
  # As many of each class as of CIFAR-10.
  'server_examples': 10_000,
  'labelled_examples': 10_000,
  # As many as classes.
  'sets_per_client': '100',
}
# Zhang et al., appendix I.
_OF_STL10 = {**_PHOTOS, 'noniid_r': 0.0, 'clients_per_round': 2}

# fmt: off
TABLE = (
  TfdsImages('emnist_balanced', 'EMNIST balanced', 'emnist/balanced', 47,
             (28, 28, 1), *_INK, False, (112_800, 18_800), _OF_EMNIST,
             transposed=True),
  TfdsImages('mnist', 'MNIST', 'mnist', 10,
             (28, 28, 1), *_INK, False, (60_000, 10_000), _OF_MNIST),
  TfdsImages('cifar10', 'CIFAR-10', 'cifar10', 10,
             (32, 32, 3), *_PHOTO, True, (50_000, 10_000), _PHOTOS),
  TfdsImages('cifar100', 'CIFAR-100', 'cifar100', 100,
             (32, 32, 3), *_PHOTO, True, (50_000, 10_000), _OF_CIFAR100),
  TfdsImages('svhn', 'SVHN', 'svhn_cropped', 10,
             (32, 32, 3), *_PHOTO, False, (73_257, 26_032), _PHOTOS),
  TfdsImages('stl10', 'STL-10', 'stl10', 10,
             (96, 96, 3), *_PHOTO, True, (105_000, 8_000), _OF_STL10,
             train_split='train+unlabelled'),
)
# fmt: on


def _load(entry: TfdsImages, data_dir: str | None, cache_dir: str) -> Source:
  """Loads one row of `TABLE`, with upright images and without client ids."""
  builder = (
    _downloaded_builder(entry)
    if data_dir is None
    else _local_builder(entry, data_dir)
  )
  train = _read_split(entry, builder, entry.train_split)
  test = _read_split(entry, builder, 'test')
  found = (len(train.labels), len(test.labels))
  title = f'{entry.title}: {found[0]:,} train and {found[1]:,} test examples'
  if found != entry.public_examples:
    whole_train, whole_test = entry.public_examples
    title += f', a subset of the public {whole_train:,} and {whole_test:,}'
  if 'unlabelled' in entry.train_split:
    unlabelled = np.count_nonzero(train.labels == UNKNOWN)
    title += f'; {unlabelled:,} of the training images have no label'
  return Source(
    name=entry.name,
    version=f'tfds-{builder.version}-{found[0]}+{found[1]}',
    title=title,
    train=train,
    test=test,
    num_classes=entry.num_classes,
    mean=entry.mean,
    stddev=entry.stddev,
    mirrorable=entry.mirrorable,
  )


def _check_files(entry: TfdsImages, data_dir: str | None) -> None:
  """Checks that a set of `TABLE` exists or can be downloaded."""
  if data_dir is None:
    _open_downloadable(entry)
  else:
    _versions(entry, data_dir)


def _versions(
  entry: TfdsImages, data_dir: str, fits: Callable[[str], bool] = bool
) -> list[pathlib.Path]:
  """Returns the folder of each version of a prepared set; refuses none."""
  root = pathlib.Path(data_dir, 'tfds', entry.tfds_name)
  found = [path.parent for path in root.glob('*/dataset_info.json')]
  found = [path for path in found if fits(path.name)]
  if not found:
    raise ValueError(
      f'dataset={entry.name!r}: data_dir holds no prepared TFDS set at '
      f'{root}/<version>/dataset_info.json; put it there, or '
      'give no data_dir to let TFDS download it.'
    )
  return found


def _local_builder(entry: TfdsImages, data_dir: str):
  """Opens the newest prepared version under `data_dir`, without network."""
  import tensorflow_datasets as tfds

  found = _versions(entry, data_dir, tfds.core.Version.is_valid)
  prepared = str(max(found, key=lambda path: tfds.core.Version(path.name)))
  try:
    return tfds.builder_from_directory(prepared)
  except Exception as error:  # TFDS raises whatever its JSON parser raises.
    raise ValueError(
      f'dataset={entry.name!r}: {prepared} is no TFDS set '
      f'({_one_line(error)}); replace the folder.'
    ) from error


def _remedy(entry: TfdsImages) -> str:
  return (
    f'give --data_dir, a folder that holds tfds/{entry.tfds_name}/<version>/, '
    'or try again with a network'
  )


def _open_downloadable(entry: TfdsImages):
  """Returns TFDS' builder of a set, if TFDS has the set or can download it."""
  import tensorflow_datasets as tfds

  builder = tfds.builder(entry.tfds_name)
  # The path is root/name/version or root/name/config/version.
  root = builder.data_path.parents[entry.tfds_name.count('/') + 1]
  # With its earlier downloads TFDS needs no network; without either, it would
  # retry for minutes.
  archives = root / 'downloads'
  has_archives = archives.exists() and any(archives.iterdir())
  if not builder.data_path.exists() and not has_archives:
    downloads.check_reachable(
      builder.url_infos, entry.name, _remedy(entry), mirror=_READY_SETS
    )
  return builder


def _downloaded_builder(entry: TfdsImages):
  """Lets TFDS find the set in its own directory or download it."""
  builder = _open_downloadable(entry)
  try:
    builder.download_and_prepare()
  except Exception as error:  # Network, checksum, disk: TFDS has many kinds.
    raise ValueError(
      f'dataset={entry.name!r}: TFDS could not download {entry.tfds_name} '
      f'({_one_line(error)}); {_remedy(entry)}.'
    ) from error
  return builder


def _read_split(entry: TfdsImages, builder, split: str) -> Split:
  import tensorflow_datasets as tfds

  where = f'dataset={entry.name!r}: the split {split!r} in {builder.data_path}'
  try:
    batch = tfds.as_numpy(
      builder.as_dataset(split=split, batch_size=-1, shuffle_files=False)
    )
    images, labels = batch['image'], batch['label']
    expected = builder.info.splits[split].num_examples
  except Exception as error:  # TF's data-loss errors, TFDS' missing files.
    raise ValueError(
      f'{where} cannot be read ({_one_line(error)}); replace the folder.'
    ) from error
  found = (images.dtype, images.shape[1:], len(labels))
  wanted = (np.dtype(np.uint8), entry.input_shape, expected)
  if found != wanted or not expected:
    raise ValueError(
      f'{where} holds {found[2]} images {found[0]} {list(found[1])} instead of '
      f'{wanted[2]} images {wanted[0]} {list(wanted[1])}; replace the folder.'
    )
  first = UNKNOWN if 'unlabelled' in split else 0
  if labels.min() < first or labels.max() >= entry.num_classes:
    raise ValueError(
      f'{where} holds labels {labels.min()}..{labels.max()}, not {first}..'
      f'{entry.num_classes - 1}; replace the folder.'
    )
  if entry.transposed:
    images = np.ascontiguousarray(images.swapaxes(1, 2))
  return Split(images, labels.astype(np.int32))


def _one_line(error: Exception) -> str:
  lines = str(error).strip().splitlines() or [type(error).__name__]
  return lines[0][:200]


SPECS: tuple[SourceSpec, ...] = tuple(
  SourceSpec(
    name=entry.name,
    description=f'{entry.title} (TFDS {entry.tfds_name})',
    builder=functools.partial(_load, entry),
    check_files=functools.partial(_check_files, entry),
    defaults=entry.defaults,
    has_unlabelled='unlabelled' in entry.train_split,
  )
  for entry in TABLE
)
