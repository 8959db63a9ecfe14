"""What a user chooses by name, such as a process, a data set or an optimizer.

All that a name stands for is one record, a `Choice`; the alternatives among
which it chooses are one `Registry`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from tff_ssl.common import user_modules
from tff_ssl.common.setting import Setting, check_known

Values = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Choice:
  """One of several alternatives, and all that comes with it.

  Attributes:
    name: The value that chooses it, such as 'sgd'.
    description: One line for users.
    builder: The function that makes it. The settings are keyword arguments of
      it, or of what it takes.
    settings: What a user chooses of it.
    defaults: What settings are with it where the user gives nothing, by name;
      also those of other choices, such as `learning_rate`. `None` stands for no
      value. What is not among them has the builder's default.
    derive: Function that returns such defaults where they depend on others: of
      all defaults so far and of what the user gave, by name.
  """

  name: str
  description: str
  builder: Callable[..., Any]
  settings: tuple[Setting, ...] = ()
  _: dataclasses.KW_ONLY
  defaults: Values = dataclasses.field(default_factory=dict)
  derive: Callable[[Values, Values], Values] | None = None

  def __str__(self) -> str:
    return self.name

  @property
  def setting_names(self) -> tuple[str, ...]:
    """The names of the settings."""
    return tuple(setting.name for setting in self.settings)

  def arguments(self, values: Values) -> dict[str, Any]:
    """Returns the keyword arguments that the values of settings are.

    What is `None` was not given, or has no effect: the builder's default
    counts. The values may be those of other choices, too.
    """
    return {
      setting.name: value if setting.parse is None else setting.parse(value)
      for setting in self.settings
      if (value := values.get(setting.name)) is not None
    }


_Chosen = TypeVar('_Chosen', bound=Choice)


class Registry(Mapping[str, _Chosen], Generic[_Chosen]):
  """The alternatives that one setting chooses among, by name.

  Attributes:
    setting: Name of that setting.
    kind: The class of a user's own alternatives, 'module:NAME'; `None` where
      there can be none.
  """

  def __init__(
    self,
    setting: str,
    choices: Iterable[_Chosen],
    kind: type[_Chosen] | None = None,
  ):
    self.setting = setting
    self.kind = kind
    self._choices = {choice.name: choice for choice in choices}

  def __getitem__(self, name: str) -> _Chosen:
    return self._choices[name]

  def __iter__(self) -> Iterator[str]:
    return iter(self._choices)

  def __len__(self) -> int:
    return len(self._choices)

  def find(self, name: str) -> _Chosen:
    """Returns an alternative by its name, or a user's own, 'module:NAME'."""
    if self.kind is not None and user_modules.is_reference(name):
      return user_modules.load(self.setting, name, self.kind)
    check_known(self.setting, name, self)
    return self[name]
