"""Sets of MedMNIST v2 in files such as `<data_dir>/medmnist/organamnist.npz`.

Source: Yang et al., "MedMNIST v2: A Large-Scale Lightweight Benchmark for 2D
and 3D Biomedical Image Classification" (arXiv:2110.14795). The files are not
downloaded and not trusted (`datasets.files.npz_files`).
"""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.files import npz_files
from datasets.files.npz_files import Headers, NpzFile
from datasets.sources.source import LARGE_CLIENTS, Source, SourceSpec, Split

_SPLITS = ('train', 'val', 'test')
_KEYS = tuple(
  f'{split}_{kind}' for split in _SPLITS for kind in ('images', 'labels')
)
_SIZES = '{:,} train, {:,} validation and {:,} test'
_REMEDY = 'get it anew from the MedMNIST project'


@dataclasses.dataclass(frozen=True)
class MedmnistImages:
  """A MedMNIST set.

  Attributes:
    input_shape: `(H, W, C)`. Grey images have no channel axis in the file.
    public_examples: Numbers of training, validation and test examples of each
      public release, the newest first.
    defaults: What settings are on these data.
  """

  title: str
  motif: str
  num_classes: int
  input_shape: tuple[int, int, int]
  mirrorable: bool
  public_examples: tuple[tuple[int, int, int], ...]
  defaults: Mapping[str, Any]


# Hospitals, not devices: few clients with uneven classes.
_CROSS_SILO = {
  **LARGE_CLIENTS,
  'partition': 'dirichlet',
  'dirichlet_alpha': 0.1,
}
TABLE: dict[str, MedmnistImages] = {
  # Some classes are the left or the right one of two organs. The newer release,
  # which also has larger images, has 20 training examples fewer.
  'organamnist': MedmnistImages(
    'OrganAMNIST',
    'organs in axial CT slices',
    11,
    (28, 28, 1),
    False,
    ((34_561, 6_491, 17_778), (34_581, 6_491, 17_778)),
    # FedLabel, Section 5.1, as the next one.
    {
      **_CROSS_SILO,
      'num_clients': 10,
      'clients_per_round': 3,
      'server_examples': 1100,
      'labelled_examples': 1100,
      # As many as classes.
      'sets_per_client': '11',
    },
  ),
  'bloodmnist': MedmnistImages(
    'BloodMNIST',
    'blood cells under the microscope',
    8,
    (28, 28, 3),
    True,
    ((11_959, 1_712, 3_421),),
    {
      **_CROSS_SILO,
      'num_clients': 5,
      'clients_per_round': 5,
      'server_examples': 800,
      'labelled_examples': 800,
    },
  ),
}


def _load(name: str, data_dir: str | None, cache_dir: str) -> Source:
  entry = TABLE[name]
  file = _locate(name, data_dir)
  npz_files.check_sizes([file])
  arrays = file.read(
    _KEYS, lambda headers: _check_headers(file, entry, headers)
  )
  train, validation, test = (
    _as_split(file, entry, split, arrays) for split in _SPLITS
  )
  found = tuple(len(split.labels) for split in (train, validation, test))
  title = f'{entry.title}: {_SIZES.format(*found)} examples'
  if found not in entry.public_examples:
    releases = (_SIZES.format(*public) for public in entry.public_examples)
    title += f', not the public {" or ".join(releases)}'
  mean, stddev = npz_files.moments(train.examples, file.path, 'train_images')
  return Source(
    name=name,
    version='medmnist-{}+{}+{}-{}'.format(
      *found, npz_files.digest([file.path])
    ),
    title=title,
    train=train,
    test=test,
    num_classes=entry.num_classes,
    mean=mean,
    stddev=stddev,
    background=npz_files.background(train.examples),
    mirrorable=entry.mirrorable,
    validation=validation,
  )


def _locate(name: str, data_dir: str | None) -> NpzFile:
  published = (
    f'the MedMNIST project publishes {name}.npz, with images of 28x28 pixels, '
    'on Zenodo (medmnist.com leads there)'
  )
  if data_dir is None:
    raise ValueError(
      f'dataset={name!r} needs data_dir: the folder that holds '
      f'medmnist/{name}.npz; {published}.'
    )
  path = os.path.join(data_dir, 'medmnist', f'{name}.npz')
  if not os.path.isfile(path):
    raise ValueError(
      f'dataset={name!r}: there is no {path}: {published}; put it there.'
    )
  return NpzFile(path, _REMEDY)


def _check_headers(
  file: NpzFile, entry: MedmnistImages, headers: Headers
) -> None:
  is_grey = entry.input_shape[2] == 1
  shape = entry.input_shape[:2] if is_grey else entry.input_shape
  for split in _SPLITS:
    key, labels_key = f'{split}_images', f'{split}_labels'
    found, dtype = headers[key]
    if dtype != np.uint8 or found[1:] != shape or not found[0]:
      wanted = ', '.join(map(str, shape))
      raise file.wrong(
        key,
        f'{dtype} {list(found)}',
        f'{entry.title} has uint8 [N, {wanted}] with N above 0',
      )
    labels_found, labels_dtype = headers[labels_key]
    if labels_dtype.kind not in 'iu' or labels_found != (found[0], 1):
      raise file.wrong(
        labels_key,
        f'{labels_dtype} {list(labels_found)}',
        f'to {found[0]} images belong integers [{found[0]}, 1]',
      )


def _as_split(
  file: NpzFile, entry: MedmnistImages, split: str, arrays
) -> Split:
  images, labels = arrays[f'{split}_images'], arrays[f'{split}_labels'][:, 0]
  if labels.min() < 0 or labels.max() >= entry.num_classes:
    raise file.wrong(
      f'{split}_labels',
      f'{labels.min()}..{labels.max()}',
      f'{entry.title} has the classes 0..{entry.num_classes - 1}',
    )
  return Split(
    np.ascontiguousarray(images.reshape(-1, *entry.input_shape)),
    labels.astype(np.int32),
  )


SPECS: tuple[SourceSpec, ...] = tuple(
  SourceSpec(
    name=name,
    description=f'{entry.title}, {entry.motif} (MedMNIST v2)',
    builder=functools.partial(_load, name),
    check_files=functools.partial(_locate, name),
    defaults=entry.defaults,
  )
  for name, entry in TABLE.items()
)
