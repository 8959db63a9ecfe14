"""The data sources by name, and the function that loads them.

A `--dataset` flag, its help text and its refusals read this table. Importing it
costs next to nothing: TensorFlow, TFDS and scikit-learn are imported by the
loaders, when a source is loaded.
"""

import difflib
import os

from datasets.sources import (
  digits,
  emnist_writers,
  image_sets,
  medmnist,
  npz,
  npz_sets,
  tfds_images,
)
from datasets.sources.source import Source
from datasets.sources.source_spec import SourceSpec
from tff_ssl import user_modules

SOURCES: dict[str, SourceSpec] = {
  spec.name: spec
  for spec in (
    digits.SPEC,
    emnist_writers.SPEC,
    *tfds_images.SPECS,
    *medmnist.SPECS,
    npz.SPEC,
    npz_sets.SPEC,
    image_sets.SPEC,
  )
}


def names() -> list[str]:
  """Returns the names in `SOURCES`, in the order of the catalogue."""
  return list(SOURCES)


def find(name: str) -> SourceSpec:
  """Returns the source of a name.

  Args:
    name: One of `names()`, or `module:NAME` of a user's own `SourceSpec`.

  Raises:
    ValueError: If there is no such source.
  """
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
  """Checks that a source has its files, or a network to download them.

  It reads no file, so it takes a moment, or seconds without a network.

  Args:
    name: As in `find`.
    data_dir: As in `load`.

  Raises:
    ValueError: If the name is unknown, or a file is absent and cannot be
      downloaded.
  """
  find(name).check_files(_expanded(data_dir))


def load(
  name: str, *, data_dir: str | None, cache_dir: str, **options
) -> Source:
  """Loads a source.

  Args:
    name: As in `find`.
    data_dir: The folder that holds the data files, laid out as each loader's
      module says; with `None`, a public source comes from its library's own
      cache or download, except MedMNIST's, which is not downloaded. `digits`
      needs no file and does not look at it.
    cache_dir: A folder for unpacked and decoded copies; created when needed.
    **options: Those of this source, by name: `only_digits` (bool, `True` unless
      given) of `emnist`.

  Returns:
    The loaded source.

  Raises:
    ValueError: If the name or an option is unknown, an option has none of its
      values, or the files are absent or unusable.
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
