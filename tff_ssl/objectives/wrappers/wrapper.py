"""What objectives that add to another one have in common."""

from __future__ import annotations

from tff_ssl import protocols


class Wrapper:
  """An objective that passes on what it does not change of another one.

  Attributes:
    objective: The other objective.
  """

  objective: protocols.Objective

  @property
  def metric_names(self) -> tuple[str, ...]:
    """The metrics are those of the other objective."""
    return self.objective.metric_names

  @property
  def rows(self) -> str:
    """So are the examples that it takes."""
    return getattr(self.objective, 'rows', 'all')

  @property
  def needs_labelled_batch(self) -> bool:
    """Whether the inner objective reads a second minibatch, `labelled`."""
    return getattr(self.objective, 'needs_labelled_batch', False)
