"""The data sources by name, and the function that loads them.

The import is cheap: a source imports TensorFlow, TFDS or scikit-learn only when
it is loaded.
"""

import difflib
import os

from datasets.sources import digits, emnist_writers, medmnist, tfds_images
from datasets.sources.own import image_folder, npz, sets, table, text
from datasets.sources.source import Source
from datasets.sources.source_spec import SourceSpec
from tff_ssl.common import user_modules

SOURCES: dict[str, SourceSpec] = {
  spec.name: spec
  for spec in (
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
  )
}


def find(name: str) -> SourceSpec:
  """Returns the source of a name, or a user's own, `module:NAME`."""
  if name in SOURCES:
    return SOURCES[name]
  if ':' in str(name):
    return user_modules.load('dataset', name, SourceSpec)
  near = difflib.get_close_matches(str(name), SOURCES, n=1, cutoff=0.0)[0]
  raise ValueError(
    f'dataset={name!r} is unknown: did you mean {near!r}? '
    f'The sources are {", ".join(SOURCES)}, or module:NAME of a SourceSpec of '
    'your own.'
  )


def check_files(name: str, *, data_dir: str | None) -> None:
  """Checks that the files of a source exist or can be downloaded."""
  find(name).check_files(_expanded(data_dir))


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
  spec = find(name)
  for option, value in options.items():
    if option not in spec.options:
      raise ValueError(
        f'{option}={value!r} is no option of dataset={name!r}: leave it out '
        f'(options: {", ".join(spec.options) or "none"}).'
      )
    spec.options[option].check(value)
  return spec.load(
    _expanded(data_dir), os.path.expanduser(cache_dir), **options
  )


def _expanded(folder: str | None) -> str | None:
  return None if folder is None else os.path.expanduser(folder)
