"""The data sources by name, what loads them, and the one without files.

The import is cheap: a source imports TensorFlow, TFDS or scikit-learn only when
it is loaded.
"""

import os

import numpy as np

from datasets.sources import emnist_writers, medmnist, tfds_images
from datasets.sources.own import image_folder, npz, sets, table, text
from datasets.sources.source import Source, SourceSpec, Split
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
    background=0,
    mirrorable=False,
  )


_DIGITS = SourceSpec(
  name='digits',
  description='8x8 handwritten digits inside scikit-learn; needs no file',
  builder=load_digits,
  check_files=lambda data_dir: None,
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
