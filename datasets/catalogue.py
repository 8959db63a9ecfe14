"""The data sources by name: what each one is, and how it is loaded.

A `--dataset` flag, its help text and its refusals read this table. Importing it
costs next to nothing: TensorFlow, TFDS and scikit-learn are imported by the
loaders, when a source is loaded.
"""

import dataclasses
import difflib
import os
from collections.abc import Callable

from datasets import (
  embedded,
  emnist_writers,
  image_sets,
  local_files,
  medmnist,
  npz_sets,
  tfds_images,
)
from datasets.source import Source


@dataclasses.dataclass(frozen=True)
class SourceSpec:
  """What is known of a source before it is loaded.

  Attributes:
    name: The name in the catalogue.
    description: One line for help texts.
    load: `load(data_dir, cache_dir, **options) -> Source`.
    check_files: `check_files(data_dir)` raises a ValueError if the files are
      not there and cannot be downloaded either. It does not import TensorFlow.
    options: Names of the options that `load` takes, each with a default. The
      runner's flag is `--<name>_<option>`.
    has_native_split: Whether examples can come with their owners. For `npz`
      they do when the files hold `client_ids`.
    has_unlabelled: Whether there are training images without labels. For
      `npz_sets` only the file tells.
    may_lack_labels: Whether training images may be without labels, which shows
      once the files are read.
    has_sets: Whether training examples come in sets of known class priors.
    num_classes: Number of classes unless an option changes it, or `None` when
      only the files tell.
    input_shape: `(H, W, C)`, or `None` when only the files tell.
  """

  name: str
  description: str
  load: Callable[..., Source]
  check_files: Callable[[str | None], object]
  options: tuple[str, ...] = ()
  has_native_split: bool = False
  has_unlabelled: bool = False
  may_lack_labels: bool = False
  has_sets: bool = False
  num_classes: int | None = None
  input_shape: tuple[int, int, int] | None = None


def _tfds_specs() -> list[SourceSpec]:
  return [
    SourceSpec(
      name=name,
      description=f'{entry.title} (TFDS {entry.tfds_name})',
      load=tfds_images.loader(name),
      check_files=tfds_images.file_checker(name),
      has_unlabelled=entry.has_unlabelled,
      num_classes=entry.num_classes,
      input_shape=entry.input_shape,
    )
    for name, entry in tfds_images.TABLE.items()
  ]


def _medmnist_specs() -> list[SourceSpec]:
  return [
    SourceSpec(
      name=name,
      description=f'{entry.title}, {entry.motif} (MedMNIST v2)',
      load=medmnist.loader(name),
      check_files=medmnist.file_checker(name),
      num_classes=entry.num_classes,
      input_shape=entry.input_shape,
    )
    for name, entry in medmnist.TABLE.items()
  ]


SOURCES: dict[str, SourceSpec] = {
  spec.name: spec
  for spec in [
    SourceSpec(
      name='digits',
      description='8x8 handwritten digits inside scikit-learn; needs no file',
      load=embedded.load_digits,
      check_files=lambda data_dir: None,
      num_classes=embedded.NUM_CLASSES,
      input_shape=embedded.INPUT_SHAPE,
    ),
    SourceSpec(
      name='emnist',
      description='federated EMNIST, native split by writer (TFF)',
      load=emnist_writers.load,
      check_files=emnist_writers.check_files,
      options=('only_digits',),
      has_native_split=True,
      num_classes=emnist_writers.DIGITS.num_classes,
      input_shape=emnist_writers.INPUT_SHAPE,
    ),
    *_tfds_specs(),
    *_medmnist_specs(),
    SourceSpec(
      name='npz',
      description='your own <data_dir>/train.npz and test.npz',
      load=local_files.load,
      check_files=local_files.check_files,
      has_native_split=True,
      may_lack_labels=True,
    ),
    SourceSpec(
      name='npz_sets',
      description='your own sets of known class priors, <data_dir>/train.npz, '
      'test.npz and priors.csv',
      load=npz_sets.load,
      check_files=npz_sets.check_files,
      has_sets=True,
    ),
    SourceSpec(
      name='image_sets',
      description='your own sets as PNG files, <data_dir>/train/<system>/'
      '<hospital>/, test/<class>/ and prevalence.csv',
      load=image_sets.load,
      check_files=image_sets.check_files,
      has_unlabelled=True,
      has_sets=True,
    ),
  ]
}


def names() -> list[str]:
  """Returns the names that `load` knows, in the order of the catalogue."""
  return list(SOURCES)


def check_files(name: str, *, data_dir: str | None) -> None:
  """Checks that a source has its files, or a network to download them.

  It reads no file, so it takes a moment, or seconds without a network.

  Args:
    name: One of `names()`.
    data_dir: As in `load`.

  Raises:
    ValueError: If a file is absent and cannot be downloaded.
  """
  if data_dir is not None:
    data_dir = os.path.expanduser(data_dir)
  SOURCES[name].check_files(data_dir)


def load(
  name: str, *, data_dir: str | None, cache_dir: str, **options
) -> Source:
  """Loads a source.

  Args:
    name: One of `names()`.
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
    ValueError: If the name or an option is unknown, or the files are absent or
      unusable.
  """
  if name not in SOURCES:
    near = difflib.get_close_matches(str(name), SOURCES, n=1, cutoff=0.0)[0]
    raise ValueError(
      f'dataset={name!r} is unknown: did you mean {near!r}? '
      f'The sources are {", ".join(SOURCES)}.'
    )
  spec = SOURCES[name]
  for option, value in options.items():
    if option not in spec.options:
      raise ValueError(
        f'{option}={value!r} is no option of dataset={name!r}: leave it out '
        f'(options: {", ".join(spec.options) or "none"}).'
      )
  if data_dir is not None:
    data_dir = os.path.expanduser(data_dir)
  return spec.load(data_dir, os.path.expanduser(cache_dir), **options)
