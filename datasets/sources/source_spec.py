"""What is known of a data source before it is loaded."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from datasets.sources import run_profiles
from datasets.sources.source import Source
from tff_ssl.setting import Setting

Values = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class SourceSpec:
  """A data source: its name, its settings and the functions that read it.

  Attributes:
    name: The name in `catalogue.SOURCES`, or of a user's own source.
    description: One line for help texts.
    load: `load(data_dir, cache_dir, **options) -> Source`.
    check_files: `check_files(data_dir)` raises a `ValueError` if the files are
      not there and cannot be downloaded either. It does not import TensorFlow.
    settings: The settings of this source alone. The name of each begins with
      the source's name and an underscore. The rest is the option of `load`,
      which has a default there.
    has_native_split: Whether examples can come with their owners. For `npz`
      they do when the files hold `client_ids`.
    has_unlabelled: Whether there are training images without labels. For
      `npz_sets` only the file tells.
    may_lack_labels: Whether training images may be without labels, which shows
      once the files are read.
    has_sets: Whether training examples come in sets of known class priors.
    defaults: What the runner takes on this source for settings, of any part of
      a run, that are not given: the values by name, or a function that returns
      them from what was given.
  """

  name: str
  description: str
  load: Callable[..., Source]
  check_files: Callable[[str | None], object]
  settings: tuple[Setting, ...] = ()
  has_native_split: bool = False
  has_unlabelled: bool = False
  may_lack_labels: bool = False
  has_sets: bool = False
  defaults: Values | Callable[[Values], Values] = dataclasses.field(
    default_factory=lambda: run_profiles.OWN_IMAGES
  )

  def __post_init__(self):
    for setting in self.settings:
      if not setting.name.startswith(f'{self.name}_'):
        raise ValueError(
          f'The setting {setting.name!r} of the source {self.name!r} needs a '
          f'name that begins with {self.name + "_"!r}.'
        )

  @property
  def options(self) -> dict[str, Setting]:
    """The settings by the name of the option of `load`."""
    start = len(self.name) + 1
    return {setting.name[start:]: setting for setting in self.settings}
