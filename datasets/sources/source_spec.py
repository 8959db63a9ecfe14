"""The record of a data source: all that is known before it is loaded."""

import dataclasses
from collections.abc import Callable

from datasets.sources.source import FORMS
from tff_ssl.common.choice import Choice
from tff_ssl.common.setting import Setting


@dataclasses.dataclass(frozen=True)
class SourceSpec(Choice):
  """A data source: its name, its settings and the functions that read it.

  `builder(data_dir, cache_dir, **options) -> Source` raises a `ValueError` if
  the files are absent or unusable. The name of each setting consists of the
  source's name, an underscore, and the name of an option of that function, in
  whose signature the default stands.

  Attributes:
    check_files: `check_files(data_dir)` raises a `ValueError` if the files are
      absent and cannot be downloaded. It does not import TensorFlow.
    form: What examples are, a key of `source.FORMS`.
    has_native_split: Whether the data can name the owner of each example. Those
      of `npz` do if the files hold `client_ids`.
    has_unlabelled: Whether some training images always lack labels.
    may_lack_labels: Whether some training images may lack labels. The runner
      learns it when it reads the files.
    has_sets: Whether training examples come in sets of known class priors.
    is_of_user: Whether the folder of the data says which data they are, since
      its files are a user's own.
  """

  _: dataclasses.KW_ONLY
  check_files: Callable[[str | None], object]
  form: str = 'images'
  has_native_split: bool = False
  has_unlabelled: bool = False
  may_lack_labels: bool = False
  has_sets: bool = False
  is_of_user: bool = False

  def __post_init__(self):
    if self.form not in FORMS:
      raise ValueError(
        f'form={self.form!r} of the source {self.name!r} is unknown: choose '
        f'{" or ".join(FORMS)}.'
      )
    for setting in self.settings:
      if not setting.name.startswith(f'{self.name}_'):
        raise ValueError(
          f'The setting {setting.name!r} of the source {self.name!r} needs a '
          f'name that begins with {self.name + "_"!r}.'
        )

  @property
  def options(self) -> dict[str, Setting]:
    """The settings by the names of the options of `builder`."""
    start = len(self.name) + 1
    return {setting.name[start:]: setting for setting in self.settings}
