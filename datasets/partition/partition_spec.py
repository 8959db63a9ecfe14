"""The record of a partition: all that is known before it is built."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tff_ssl.common.choice import Choice, Values


@dataclasses.dataclass(frozen=True)
class PartitionSpec(Choice):
  """A partition: its name, its settings and the function that draws it.

  `builder(source, *, seed, server_examples, **settings) -> Assignment` draws
  it. With `in_sets` it takes no `server_examples` and returns an `Assignment`
  with sets. The user must give each setting that has no default in the
  signature; the runner takes the `default` of the record.

  Attributes:
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
    complete: Takes the settings and returns those that `builder` gets and a run
      records, in which it fills in derived values. It raises a `ValueError` if
      the settings do not fit each other.
  """

  _: dataclasses.KW_ONLY
  needs_client_ids: bool = False
  in_sets: bool = False
  needs_sets: bool = False
  deals_test: bool = False
  needs_labels: Callable[[Values], bool] = lambda settings: False
  server_settings: tuple[str, ...] = ()
  complete: Callable[[dict[str, Any]], dict[str, Any]] = dict
