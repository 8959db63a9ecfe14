"""The record of a partition: all that is known before it is built."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from datasets.partition.assignment import Assignment
from tff_ssl.common.setting import Setting

Values = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class PartitionSpec:
  """A partition: its name, its settings and the function that draws it.

  Attributes:
    name: The name in `partitions.PARTITIONS`, or of a user's own partition.
    build: Draws the partition: `build(source, *, seed, server_examples,
      **settings) -> Assignment`. With `in_sets` it takes no `server_examples`
      and returns an `Assignment` with sets. The user must give each setting
      that has no default in the signature.
    settings: The settings that not all partitions have. The runner uses the
      `default` of the record if there is no flag.
    needs_client_ids: Whether the source must name the owner of each example. If
      labels are at the clients, they label examples of their own.
    in_sets: Whether each client's examples lie in sets.
    needs_sets: Whether the source's examples must come in sets.
    deals_test: Whether clients without test examples of their own get an equal
      share of each class (`assignment.deal_test_evenly`).
    needs_labels: Takes the settings and returns whether the class of each
      example must be known.
    server_settings: The names of the settings for the draw of the server's
      examples. They have no effect if labels are at the clients.
    overrides: Returns the runner's defaults with this partition, for settings
      of any part of a run. It takes the runner's values so far and the settings
      that the user gave. `None` stands for no value.
    complete: Takes the settings and returns those that `build` gets and a run
      records, in which it fills in derived values. It raises a `ValueError` if
      the settings do not fit each other.
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
