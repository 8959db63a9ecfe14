"""The loop over the rounds of a run.

Processes of this library also run in `tff.learning.programs.train_model`, which
is for production programs. That ignores a failed save, so a run whose disk is
full would end without an error. Here, the row and the checkpoint of each round
are on the disk before the next round begins.
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil

from experiments.config import command_line
from experiments.measuring.evaluation import (
  FinishedRound,
  Measurement,
  MeasurementBefore,
)
from experiments.running.participants import Cohorts
from experiments.running.run_checkpoints import RunCheckpoints
from tff_ssl import checks
from tff_ssl.simulation.client_faults import Cohort

# Rounds in a row without a finite update before the run stops.
_MAX_STALLED_ROUNDS = 3
# Cohorts that are drawn for one round before the run ends.
_MAX_ATTEMPTS = 5
# How many values were clipped, by data type, where metrics are summed securely.
_OF_SECURE_METRICS = 'secure_sum_measurements'


class StalledError(RuntimeError):
  """The model no longer moves: its updates are not finite."""


class GivenUpError(RuntimeError):
  """Too few clients complete a round, whichever are drawn."""


class _Lost(NamedTuple):
  """How many invited clients do not complete a round; `None` where unknown."""

  dropped: int
  non_finite: int | None = None
  invalid: int | None = None

  @property
  def total(self) -> int:
    return sum(count or 0 for count in self)

  @property
  def remedy(self) -> str:
    if 2 * (self.non_finite or 0) > self.total:
      return 'training diverges, so lower --learning_rate (or --corrupt_share)'
    return 'lower it, or find out what keeps clients from completing'

  def __str__(self) -> str:
    reasons = ('dropped out', 'not finite', 'invalid')
    return ', '.join(
      f'{count} {reason}'
      for count, reason in zip(self, reasons, strict=True)
      if count is not None
    )


@dataclasses.dataclass(eq=False)
class RoundLoop:
  """Trains a process round by round, and records each round.

  Attributes:
    process: The process, over clients' keys.
    read_weights: From the state to the `ModelWeights` that are evaluated.
    min_completion: Share of the invited clients that must complete a round:
      report, with finite values and a group that exists. With fewer of them the
      state stays as it was, and other clients are drawn.
  """

  process: Any
  cohorts: Cohorts
  checkpoints: RunCheckpoints
  total_rounds: int
  rounds_per_checkpoint: int
  read_weights: Callable[[Any], Any]
  min_completion: float = 0.0
  # Since the last checkpoint: all who may have a new state, then.
  _participants: set[int] = dataclasses.field(default_factory=set, init=False)
  _stalled: int = dataclasses.field(default=0, init=False)

  def run(
    self,
    state,
    first_round: int,
    *,
    stop: command_line.GracefulStop,
    measurements: Sequence[Measurement],
    before: Sequence[MeasurementBefore] = (),
    logs: Sequence[Callable[[int, dict[str, object]], None]],
    show: Callable[[int, dict[str, object]], None],
    checks: Sequence[Callable[[FinishedRound], None]] = (),
  ):
    """Trains from a state after `first_round` rounds; returns the last state.

    Measurements are called after each round, one after the other; each sees the
    columns of those before it. Those of `before` are called before a round is
    trained. A finished row goes to the logs before its checkpoint, and is shown
    after it. What a check raises at the very end of a round ends the run.
    """
    for round_num in range(first_round, self.total_rounds):
      if stop.requested:
        break
      state, cohort, row = self._train(state, round_num, stop, before)
      self.checkpoints.participation.note(round_num + 1, cohort)
      finished = FinishedRound(round_num + 1, state, self.read_weights, row)
      for measure in measurements:
        finished.row.update(measure(finished))
      # The row before the checkpoint: a resumed run drops and repeats what a
      # crash leaves between the two, and no row is ever missing.
      for log in logs:
        log(finished.number, finished.row)
      if (
        finished.number % self.rounds_per_checkpoint == 0
        or finished.number == self.total_rounds
        or stop.requested
        or self.checkpoints.must_keep(finished)
      ):
        self.checkpoints.save(finished, self._participants)
        self._participants = set()
      show(finished.number, finished.row)
      self._check_moves(finished.row)
      for check in checks:
        check(finished)
    return state

  def _train(
    self, state, round_num, stop, before
  ) -> tuple[Any, Cohort, dict[str, object]]:
    """Returns a round's state, clients and row; enough have completed it."""
    paused = self.checkpoints.rewinds.is_paused(round_num + 1)
    seconds = 0.0
    for attempt in itertools.count():
      cohort = self.cohorts.draw(
        round_num,
        attempt,
        paused=paused,
        participation=self.checkpoints.participation,
      )
      lost = _Lost(len(cohort.dropped))
      # If too many drop out, it does not matter what the others would report.
      if not self._is_too_few(cohort, lost):
        self._participants.update(int(key[0]) for key in cohort.keys)
        measured = {}
        with stop.droppable():
          for measure in before:
            measured.update(measure(round_num, state, cohort.keys, attempt))
          started = time.monotonic()
          output = self.process.next(state, cohort.keys)
          seconds += time.monotonic() - started
        row = flatten(output.metrics)
        lost = _Lost(
          lost.dropped,
          row.get('clients_non_finite', 0),
          row.get('clients_invalid', 0),
        )
        if not self._is_too_few(cohort, lost):
          row |= {
            **self.cohorts.counts(cohort),
            **({'attempts': attempt + 1} if attempt else {}),
            'seconds': seconds,
            **_memory(),
            **measured,
          }
          return output.state, cohort, row
        self._check_moves(row)
      if attempt + 1 == _MAX_ATTEMPTS:
        raise GivenUpError(
          f'Round {round_num + 1} was given up {_MAX_ATTEMPTS} times: of '
          f'{len(cohort.invited)} clients, too few completed it ({lost} in the '
          f'last attempt) for --min_completion={self.min_completion:g}: '
          f'{lost.remedy}.'
        )

  def _is_too_few(self, cohort: Cohort, lost: _Lost) -> bool:
    invited = len(cohort.invited)
    # As a float, .14 * 50 is more than 7.
    return invited - lost.total < checks.exact(self.min_completion) * invited

  def _check_moves(self, row):
    column = _stalls(row)
    self._stalled = self._stalled + 1 if column else 0
    if self._stalled >= _MAX_STALLED_ROUNDS:
      raise StalledError(
        f'No update was finite in {self._stalled} rounds in a row, those given '
        f'up counted ({column} in metrics.csv): lower --learning_rate.'
      )


def _stalls(row) -> str | None:
  """Returns the column that says why the model cannot have moved, or None."""
  if row['update_non_finite']:
    return 'update_non_finite'
  # Such clients are left out, and a mean over nobody is a finite zero.
  if row.get('clients_non_finite') and not row['clients_participating']:
    return 'clients_non_finite'
  return None


def flatten(metrics) -> dict[str, object]:
  """Turns a process's metrics into one row of scalars.

  The `loss` and `accuracy` of client training get the prefix `train_`. Its
  other metrics keep their names. An undefined value (0/0) is left out.
  """
  row = {}
  for name, value in metrics['client_work']['train'].items():
    if name == _OF_SECURE_METRICS:
      row['metrics_clipped'] = sum(
        int(each[f'secure_{end}_clipped_count'])
        for each in value.values()
        for end in ('lower', 'upper')
      )
      continue
    name = f'train_{name}' if name in ('loss', 'accuracy') else name
    row[name] = float(value)
  for name, value in metrics['client_work']['clients'].items():
    row[f'clients_{name}'] = int(value)
  # Many aggregators measure nothing, and then return an empty tuple.
  if 'group_weights' in metrics['aggregator']:
    groups = np.asarray(metrics['aggregator']['group_weights'])
    row['group_sizes'] = '|'.join(f'{size:g}' for size in groups)
  for name, value in metrics['finalizer'].get('server', {}).items():
    row[f'server_{name}'] = float(value)
  row['update_non_finite'] = int(metrics['finalizer']['update_non_finite'])
  return {
    name: value
    for name, value in row.items()
    if not (isinstance(value, float) and math.isnan(value))
  }


def _memory() -> dict[str, float]:
  return {'python_mib': round(psutil.Process().memory_info().rss / 2**20, 1)}
