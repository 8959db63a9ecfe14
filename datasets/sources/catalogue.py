"""The data sources by name, what loads them, and the one without files.

The import is cheap: a source imports TensorFlow, TFDS or scikit-learn only when
it is loaded.
"""

import contextlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets.sources import emnist_writers, medmnist, tfds_images
from datasets.sources.own import image_folder, npz, sets, table, text
from datasets.sources.source import (
  SMALL_CLIENTS,
  Source,
  SourceSpec,
  Split,
)
from tff_ssl.common.choice import Registry

# Of the 1,437 training images scaled to [0, 1]; a test recomputes them.
_MEAN = 0.3048
_STDDEV = 0.3758


def load_digits(data_dir: str | None, cache_dir: str) -> Source:
  """Loads the digits: 1,437 train, 360 test, stratified by class."""
  from sklearn import datasets
  from sklearn.model_selection import train_test_split

  bunch = datasets.load_digits()
  images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
  labels = bunch.target.astype(np.int32)
  train_images, test_images, train_labels, test_labels = train_test_split(
    images, labels, test_size=360, stratify=labels, random_state=20200824
  )
  counts = f'{len(train_labels):,} train and {len(test_labels):,} test'
  return Source(
    name='digits',
    version=f'sklearn-digits-{len(train_labels)}+{len(test_labels)}',
    title=f'scikit-learn digits, 8x8 pixels: {counts} examples',
    train=Split(train_images, train_labels),
    test=Split(test_images, test_labels),
    num_classes=10,
    mean=(_MEAN,),
    stddev=(_STDDEV,),
  )


_DIGITS = SourceSpec(
  name='digits',
  description='8x8 handwritten digits inside scikit-learn; needs no file',
  builder=load_digits,
  check_files=lambda data_dir: None,
  defaults={
    **SMALL_CLIENTS,
    'partition': 'r',
    'num_clients': 20,
    'noniid_r': 0.4,
    'total_rounds': 100,
  },
)

SOURCES: Registry[SourceSpec] = Registry(
  'dataset',
  (
    _DIGITS,
    emnist_writers.SPEC,
    *tfds_images.SPECS,
    *medmnist.SPECS,
    npz.SPEC,
    image_folder.SPEC,
    sets.NPZ,
    sets.IMAGES,
    table.SPEC,
    text.SPEC,
  ),
  SourceSpec,
)


def check_files(name: str, *, data_dir: str | None) -> None:
  """Checks that the files of a source exist or can be downloaded."""
  SOURCES.find(name).check_files(data_dir and os.path.expanduser(data_dir))


def load(
  name: str, *, data_dir: str | None, cache_dir: str, **options
) -> Source:
  """Loads a source.

  Args:
    data_dir: The folder of the data files, in the layout that the source's
      module describes. If it is `None`, the source's library reads its own
      cache or downloads the files.
    cache_dir: A folder for unpacked and decoded copies; created when needed.
    **options: The options of this source, such as `only_digits` of `emnist`.
  """
  spec = SOURCES.find(name)
  for option, value in options.items():
    if option not in spec.options:
      raise ValueError(
        f'{option}={value!r} is no option of dataset={name!r}: leave it out '
        f'(options: {", ".join(spec.options) or "none"}).'
      )
    spec.options[option].check(value)
  folder = data_dir and os.path.expanduser(data_dir)
  source = spec.builder(folder, os.path.expanduser(cache_dir), **options)
  if not isinstance(source, Source):
    raise TypeError(
      f'dataset={name!r}: its function returned {source!r}: let it return an '
      'object of the class Source.'
    )
  return source


def recognise(folder: pathlib.Path) -> str:
  """Returns the name of the data set of a user's that reads a folder.

  Args:
    folder: That of the data.

  Raises:
    ValueError: If no data set reads the folder, or if it holds the files of
      two, neither of which takes the files of the other.
  """
  if not folder.is_dir():
    raise ValueError(f'FOLDER={folder} is no folder: name that of your data.')
  held = {path.name for path in folder.iterdir()}
  found = []
  # Those that need more come behind others.
  for spec in reversed(list(SOURCES.values())):
    if signs := [set(names) for names in spec.signs if held.issuperset(names)]:
      with contextlib.suppress(ValueError):  # Of files that cannot be read.
        if spec.fits(str(folder)):
          found.append((spec.name, signs[0]))
  if not found:
    signs = {names[-1] for spec in SOURCES.values() for names in spec.signs}
    raise ValueError(
      f'FOLDER={folder} holds nothing that is known: put '
      f'{", ".join(sorted(signs))} there (see docs/how_to/own_data.md), or '
      'give --dataset.'
    )
  (first, files), *rest = found
  # One kind may be read from a part of another's files.
  for other, its_files in rest:
    if not (its_files <= files or files <= its_files):
      raise ValueError(
        f'FOLDER={folder} holds data of two kinds, {first} '
        f'({", ".join(sorted(files))}) and {other} '
        f'({", ".join(sorted(its_files))}): give --dataset, or put them apart.'
      )
  return first


def decode(
  path: str, input_shape: tuple[int, ...], preprocessing: Mapping[str, Any]
) -> tuple[np.ndarray, list[str]]:
  """Reads the examples of a file, to be classified.

  They are what they would have been in training, in the `input_shape` of a
  model and by the `preprocessing` of its data; see `SourceSpec.decode`.
  """
  spec = SOURCES.get(preprocessing.get('kind'), npz.SPEC)
  if pathlib.Path(path).suffix.lower() not in spec.endings:
    raise ValueError(
      f'{path} has an unknown ending: give files that end in '
      f'{", ".join(spec.endings[:-1])} or {spec.endings[-1]}.'
    )
  if not os.path.isfile(path):
    raise ValueError(f'{path}: no such file; give the path of one.')
  return spec.decode(path, input_shape, preprocessing)
