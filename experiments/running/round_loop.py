"""The loop over the rounds of a run.

Processes of this library also run in `tff.learning.programs.train_model`, which
is for production programs. That ignores a failed save, so a run whose disk is
full would end without an error. Here, the row and the checkpoint of each round
are on the disk before the next round begins.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil

from experiments.measuring.finished_round import (
  FinishedRound,
  Measurement,
  MeasurementBefore,
)
from experiments.running import signals
from experiments.running.run_checkpoints import RunCheckpoints
from tff_ssl.simulation import workers

# Rounds in a row without a finite update before the run stops.
_MAX_STALLED_ROUNDS = 3
# How many values were clipped, by data type, where metrics are summed securely.
_OF_SECURE_METRICS = 'secure_sum_measurements'


class StalledError(RuntimeError):
  """The model no longer moves: its updates are not finite."""


class RoundLoop:
  """Trains a process round by round, and records each round."""

  def __init__(
    self,
    process,
    *,
    sample_keys: Callable[..., Sequence[Any]],
    checkpoints: RunCheckpoints,
    total_rounds: int,
    rounds_per_checkpoint: int,
    read_weights: Callable[[Any], Any] | None = None,
  ):
    """Initializes the loop.

    Args:
      process: Learning process over client keys.
      sample_keys: From `round_num` to the keys of the round's participants,
        such as a partial `client_sampling.sample_keys`.
      checkpoints: Saves the checkpoints, and knows when clients pause.
      total_rounds: Rounds of the whole run.
      rounds_per_checkpoint: Rounds between checkpoints.
      read_weights: From the state to the `ModelWeights` that are evaluated; by
        default the process's `get_model_weights`.
    """
    self._process = process
    self._sample_keys = sample_keys
    self._checkpoints = checkpoints
    self._total_rounds = total_rounds
    self._rounds_per_checkpoint = rounds_per_checkpoint
    self._read_weights = read_weights or process.get_model_weights
    self._stalled = 0

  def run(
    self,
    state,
    first_round: int,
    *,
    stop: signals.GracefulStop,
    measurements: Sequence[Measurement],
    before: Sequence[MeasurementBefore] = (),
    logs: Sequence[Callable[[int, dict[str, object]], None]],
    show: Callable[[int, dict[str, object]], None],
    checks: Sequence[Callable[[FinishedRound], None]] = (),
  ):
    """Trains until the last round or until asked to stop.

    Args:
      state: The process's state after `first_round` rounds.
      first_round: Rounds done before.
      stop: Asks the loop to stop.
      measurements: Called after each round, one after the other. Each sees the
        columns of those before it.
      before: Called before each round is trained; their columns join its row.
      logs: Called with the number and the row of each finished round, before
        its checkpoint.
      show: Called likewise, after the checkpoint.
      checks: Called with each finished round at its very end. What one raises
        ends the run.

    Returns:
      The state after the last round done.

    Raises:
      StalledError: If no update was finite in several rounds in a row.
    """
    participants = set()
    for round_num in range(first_round, self._total_rounds):
      if stop.requested:
        break
      paused = self._checkpoints.rewinds.is_paused(round_num + 1)
      keys = [] if paused else self._sample_keys(round_num=round_num)
      participants.update(int(key[0]) for key in keys)
      measured = {}
      with stop.droppable():
        for measure in before:
          measured.update(measure(round_num, state, keys))
        started = time.monotonic()
        output = self._process.next(state, keys)
        seconds = time.monotonic() - started
      state = output.state
      finished = FinishedRound(
        round_num + 1,
        state,
        self._read_weights,
        {
          **flatten(output.metrics),
          'seconds': seconds,
          **_memory(),
          **measured,
        },
      )
      for measure in measurements:
        finished.row.update(measure(finished))
      # The row before the checkpoint: a resumed run drops and repeats what a
      # crash leaves between the two, and no row is ever missing.
      for log in logs:
        log(finished.number, finished.row)
      if (
        finished.number % self._rounds_per_checkpoint == 0
        or finished.number == self._total_rounds
        or stop.requested
        or self._checkpoints.must_keep(finished)
      ):
        self._checkpoints.save(finished, participants)
        participants = set()
      show(finished.number, finished.row)
      self._check_moves(finished.row)
      for check in checks:
        check(finished)
    return state

  def _check_moves(self, row):
    column = _stalls(row)
    self._stalled = self._stalled + 1 if column else 0
    if self._stalled >= _MAX_STALLED_ROUNDS:
      raise StalledError(
        f'No update was finite in {self._stalled} rounds in a row ({column} in '
        'metrics.csv): lower --learning_rate.'
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

  Args:
    metrics: From the output of `process.next`.
  """
  row = {}
  for name, value in metrics['client_work']['train'].items():
    if name == _OF_SECURE_METRICS:
      continue
    name = f'train_{name}' if name in ('loss', 'accuracy') else name
    row[name] = float(value)
  for name, value in metrics['client_work']['clients'].items():
    row[f'clients_{name}'] = int(value)
  groups = metrics['aggregator'].get('group_weights')
  if groups is not None:
    row['group_sizes'] = '|'.join(f'{size:g}' for size in np.asarray(groups))
  for name, value in metrics['finalizer'].get('server', {}).items():
    row[f'server_{name}'] = float(value)
  row['update_non_finite'] = int(metrics['finalizer']['update_non_finite'])
  return {
    name: value
    for name, value in row.items()
    if not (isinstance(value, float) and math.isnan(value))
  }


def _memory() -> dict[str, float]:
  resident = psutil.Process().memory_info().rss / 2**20
  return {
    'python_mib': round(resident, 1),
    'worker_mib': round(workers.worker_memory_mib(), 1),
  }
