"""The data sources by name, and the function that loads them.

The import is cheap: a source imports TensorFlow, TFDS or scikit-learn only when
it is loaded.
"""

import os

from datasets.sources import digits, emnist_writers, medmnist, tfds_images
from datasets.sources.own import image_folder, npz, sets, table, text
from datasets.sources.source import Source, SourceSpec
from tff_ssl.common.choice import Registry

SOURCES: Registry[SourceSpec] = Registry(
  'dataset',
  (
    digits.SPEC,
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
