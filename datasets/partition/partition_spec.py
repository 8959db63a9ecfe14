"""What is known of a partition before it is built."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from datasets.draws.assignment import Assignment
from tff_ssl.setting import Setting

Values = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class PartitionSpec:
  """A partition: its name, its settings and the function that draws it.

  Attributes:
    name: The name in `partitions.PARTITIONS`, or of a user's own partition.
    summary: One line.
    build: Draws the partition: `build(source, *, seed, server_examples,
      **settings) -> Assignment`. With `in_sets` it has no `server_examples`,
      and gives a `datasets.draws.set_assignment.SetAssignment`. A setting
      without a default in its signature must be given.
    settings: The settings that apply to this partition and not to all. A
      record's `default` is what the runner takes without a flag.
    needs_client_ids: Whether the source must say who owns each example. Where
      labels are at the clients, these then label examples of their own.
    in_sets: Whether each client's examples lie in sets.
    needs_sets: Whether the source's examples must come in sets.
    deals_test: Whether clients without test examples of their own get an equal
      share of each class (`datasets.draws.evaluation_owners`).
    needs_labels: From the settings to whether the class of each example must be
      known.
    server_settings: The names of those settings that say how the server's
      examples are drawn. Where labels are at the clients, they have no effect.
    overrides: What the runner takes for settings, of any part of a run, that
      are not given: from its values before this and from what was given to the
      changes. `None` stands for no value.
    complete: From the settings to those that `build` gets and a run records:
      what follows from others is filled in. It raises a `ValueError` where they
      do not fit each other.
  """

  name: str
  summary: str
  build: Callable[..., Assignment]
  settings: tuple[Setting, ...] = ()
  needs_client_ids: bool = False
  in_sets: bool = False
  needs_sets: bool = False
  deals_test: bool = False
  needs_labels: Callable[[Values], bool] = lambda settings: False
  server_settings: tuple[str, ...] = ()
  overrides: Callable[[Values, Values], Values] | None = None
  complete: Callable[[dict[str, Any]], dict[str, Any]] = dict

  @property
  def setting_names(self) -> tuple[str, ...]:
    """The names of `settings`."""
    return tuple(setting.name for setting in self.settings)
