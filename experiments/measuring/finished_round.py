"""What a measurement gets to see of a round, before it or when it is done."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class FinishedRound:
  """A round that is done, with the row of metrics that grows for it.

  Attributes:
    number: Rounds done, this one included.
    state: The process's state after it.
    row: The metrics found so far, by their column in metrics.csv.
  """

  def __init__(
    self,
    number: int,
    state: Any,
    read_weights: Callable[[Any], Any],
    row: Mapping[str, object] | None = None,
  ):
    """Initializes the round.

    Args:
      number: Rounds done, this one included.
      state: The process's state after it.
      read_weights: From a state to the `ModelWeights` that are evaluated.
      row: The metrics of the training itself.
    """
    self.number = number
    self.state = state
    self.row = dict(row or {})
    self._read_weights = read_weights

  def at(self, number: int, state: Any) -> 'FinishedRound':
    """Returns another round of the same run, without metrics.

    Args:
      number: Rounds done.
      state: The process's state after them.
    """
    return FinishedRound(number, state, self._read_weights)

  @functools.cached_property
  def weights(self):
    """The `ModelWeights` to evaluate, read when first asked for."""
    return self._read_weights(self.state)

  @property
  def is_evaluated(self) -> bool:
    """Whether the row holds test metrics already."""
    return 'accuracy' in self.row


class Measurement(Protocol):
  """Measures a finished round, where that is due."""

  def __call__(self, finished: FinishedRound) -> Mapping[str, object]:
    """Returns columns to add to the row; none in rounds without a measurement.

    Args:
      finished: The round, with the columns of the measurements before this one.
    """


class MeasurementBefore(Protocol):
  """Measures what a round begins with, where that is due."""

  def __call__(
    self, rounds_done: int, state: Any, keys: Sequence[Any], attempt: int = 0
  ) -> Mapping[str, object]:
    """Returns columns for the row of the round that begins.

    Args:
      rounds_done: Rounds before this one.
      state: The process's state that the round begins with.
      keys: Of the round's participants (`client_sampling.sample_keys`).
      attempt: How often participants of this round have been drawn before.
    """
