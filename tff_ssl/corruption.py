"""Corrupt clients, for simulations: what goes wrong at them.

A corrupt client is not left out by anybody who knows: it takes part, and its
message or its labels are wrong. A value that is not finite is noticed at the
client, which is then left out and counted. What is finite has to be borne by
the aggregator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from etils import epy

from tff_ssl import checks

with epy.lazy_imports():
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_ssl.templates import client_data, client_task, faults

KINDS = ('nan', 'exploding', 'flipped_labels', 'flipped_signs', 'stale')
# What an exploding client multiplies its change with.
_FACTOR = 1e6

LocalUpdate = Callable[
  ['client_task.ClientTask'], tuple['client_task.LocalUpdate', Any]
]


@dataclasses.dataclass(frozen=True)
class Corruption:
  """What goes wrong at corrupt clients.

  Which clients are corrupt stands in their context
  (`ClientDataSpec(has_faults=True)`). Only what a client sends for the model
  changes, or what it trains on; its metrics and its own state stay as they are.
  A client of weight 0 sends what a sound one does.

  Attributes:
    kind: 'nan': its change of the model is not a number. 'exploding': it is
      1e6 times as large. 'flipped_signs': it points the other way.
      'flipped_labels': it trains with the label L - 1 - y in the place of y, as
      in Fang et al. (arXiv 1911.11815), Section V-A. 'stale': it trains from
      the first model of the run in every round.
    num_labels: L, for flipped labels. By default, L - 1 is the largest label of
      the client itself, as suits labels that are numbers of its sets.
  """

  kind: str
  num_labels: int | None = None

  def __post_init__(self):
    if self.kind not in KINDS:
      raise ValueError(f'kind must be one of {KINDS}, but is {self.kind!r}.')
    checks.integers_at_least(1, num_labels=self.num_labels)
    if self.num_labels is not None and self.kind != 'flipped_labels':
      raise ValueError(
        f'num_labels={self.num_labels} has no effect on kind={self.kind!r}: '
        'leave it out.'
      )

  def of(
    self,
    local_update: LocalUpdate,
    data_spec: client_data.ClientDataSpec,
    initial: tff.Computation,
  ) -> LocalUpdate:
    """Returns the local update of clients some of which are corrupt.

    Args:
      local_update: That of sound clients; see `client_work.Clients`.
      data_spec: The type of the client data.
      initial: `( -> W)`, the global weights before the first round.

    Raises:
      TypeError: If the client data do not say who is corrupt.
    """
    if not data_spec.has_faults:
      raise TypeError(
        'corruption needs client data that say who is corrupt: use '
        'ClientDataSpec(..., in_context=True, has_faults=True).'
      )

    def corrupted(task):
      is_corrupt = tf.equal(task.corrupt, 1)
      update, tag = local_update(self._misled(task, is_corrupt, initial))
      # Of weight 0 is what did not train, as in rounds of the server alone.
      is_spoilt = is_corrupt & (update.weight > 0)
      delta = faults.choose(is_spoilt, self._spoilt(update.delta), update.delta)
      return update._replace(delta=delta), tag

    return corrupted

  def _misled(self, task, is_corrupt, initial):
    """Returns what a client trains from and on."""
    if self.kind == 'stale':
      weights = faults.choose(is_corrupt, initial(), task.weights)
      return task._replace(weights=weights)
    if self.kind != 'flipped_labels':
      return task
    labels = task.examples['y']
    last = (
      tf.reduce_max(labels) if self.num_labels is None else self.num_labels - 1
    )
    is_flipped = is_corrupt & (labels >= 0)
    examples = task.examples.copy()
    examples['y'] = tf.where(is_flipped, last - labels, labels)
    return task._replace(examples=examples)

  def _spoilt(self, delta):
    """Returns what a corrupt client sends in the place of its change."""
    factor = {
      'nan': float('nan'),
      'exploding': _FACTOR,
      'flipped_signs': -1.0,
    }.get(self.kind, 1.0)
    return tf.nest.map_structure(
      lambda value: (
        value * tf.cast(factor, value.dtype)
        if value.dtype.is_floating
        else value
      ),
      delta,
    )
