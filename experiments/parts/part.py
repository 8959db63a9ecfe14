"""One of the alternatives that a setting chooses from, such as an optimizer."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tff_ssl.common.setting import Setting


@dataclasses.dataclass(frozen=True)
class Part:
  """One of several alternatives, such as an optimizer.

  Attributes:
    name: The value that chooses it.
    build: Makes it, from the values of its settings by name.
    settings: Its settings.
    overrides: Defaults of other settings that it imposes, also over those of a
      process.
    follows_gradients: Of an optimizer: whether its steps are in proportion to
      the gradients, so that a process can divide by their number.
    shorten: Of a schedule: from the flags of a run, by name, and the share of
      the rounds that a shortened run keeps, to the flags that change.
  """

  name: str
  build: Callable[..., Any]
  settings: tuple[Setting, ...] = ()
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  follows_gradients: bool = True
  shorten: Callable[[Mapping[str, Any], float], Mapping[str, Any]] = (
    lambda given, share: {}
  )
