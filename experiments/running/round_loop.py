"""The round loop: short, over a process, checkpoints and a metric log.

`tff.learning.programs.train_model` is for production programs, where processes
of this library work unchanged. It swallows a failed save, so a run whose disk
is full ends without an error; here every round's row and checkpoint are on the
disk before the next round begins.
"""

import functools
import math
import time

import numpy as np
import psutil

from experiments.running import classifiers
from tff_ssl.simulation import client_sampling, workers

# Rounds in a row without a finite update before the run stops.
_MAX_STALLED_ROUNDS = 3


class StalledError(RuntimeError):
  """The model no longer moves: its updates are not finite."""


class RoundLoop:
  """Trains from the newest checkpoint to the last round."""

  def __init__(
    self,
    process,
    *,
    settings,
    num_clients,
    evaluate,
    checkpoints,
    diversity=None,
    observe=None,
    client_states=None,
    classifier=None,
    validate=None,
    watch=None,
    read_weights=None,
  ):
    """Initializes the loop.

    Args:
      process: Learning process over client keys.
      settings: From `experiments.config.settings.make`.
      num_clients: K.
      evaluate: `(ModelWeights) -> dict` of test metrics.
      checkpoints: `CheckpointManager`.
      diversity: `(state, rounds done) -> dict` of further metrics, or `None`.
      observe: `(rounds done, state, whether test metrics are due) -> dict` of
        further metrics, called after each round, or `None`.
      client_states: `ClientStates` of the run, which belong to its
        checkpoints, or `None` where clients keep no state.
      classifier: `classifiers.Description` of what is evaluated, which then is
        in each checkpoint, or `None`.
      validate: `(ModelWeights) -> dict` of metrics on a validation split,
        called where test metrics are due, or `None`.
      watch: `(rounds done, ModelWeights, row) -> dict` of further metrics,
        called where test metrics are due with those of the round, or `None`.
      read_weights: From the state to the `ModelWeights` that are evaluated; by
        default the process's `get_model_weights`.
    """
    self._process = process
    self._settings = settings
    self._num_clients = num_clients
    self._evaluate = evaluate
    self._checkpoints = checkpoints
    self._diversity = diversity
    self._observe = observe
    self._client_states = client_states
    self._classifier = classifier
    self._validate = validate
    self._watch = watch
    self._read_weights = read_weights or process.get_model_weights
    self._stalled = 0

  def run(
    self,
    state,
    first_round,
    stop,
    progress,
    metric_logs,
    evaluate_clients=None,
  ):
    """Trains until the last round or until asked to stop.

    Args:
      state: The process's state after `first_round` rounds.
      first_round: Rounds done before.
      stop: `signals.GracefulStop`.
      progress: `progress.Progress`.
      metric_logs: Called with (round, row) for each finished round.
      evaluate_clients: `(round, ModelWeights) -> dict`, called in the place of
        `evaluate` where evaluations per client are due; gives its metrics too.

    Returns:
      The state after the last round done.
    """
    total = self._settings.total_rounds
    participants = set()
    for round_num in range(first_round, total):
      if stop.requested:
        break
      started = time.monotonic()
      keys = self._keys(round_num)
      participants.update(int(key[0]) for key in keys)
      with stop.droppable():
        output = self._process.next(state, keys)
      state = output.state
      seconds = time.monotonic() - started
      done = round_num + 1
      # Once a round, and only where they are needed.
      weights = functools.cache(functools.partial(self._read_weights, state))
      row = {**flatten(output.metrics), 'seconds': seconds, **_memory()}
      evaluated = self._evaluated(done, weights, evaluate_clients)
      row.update(evaluated)
      if evaluated and self._validate is not None:
        row.update(self._validate(weights()))
      if evaluated and self._watch is not None:
        row.update(self._watch(done, weights(), row))
      if self._observe is not None:
        row.update(self._observe(done, state, bool(evaluated)))
      if self._diversity is not None and (
        done % self._settings.rounds_per_gradient_diversity == 0
        or done == total
      ):
        row.update(self._diversity(state, done))
      # The row before the checkpoint: what a crash leaves between the two is
      # dropped and made again, never missing.
      for log in metric_logs:
        log(done, row)
      if (
        done % self._settings.rounds_per_checkpoint == 0
        or done == total
        or stop.requested
      ):
        self._save(done, state, weights, participants)
        participants = set()
      progress.update(done, row)
      self._check_moves(row)
    return state

  def _save(self, done, state, weights, participants):
    """Saves a checkpoint, and with it the states of its clients.

    Args:
      done: Rounds done.
      state: The process's state.
      weights: Returns its `ModelWeights`.
      participants: All clients since the checkpoint before.
    """
    more = {}
    if self._classifier is not None:
      more['files'] = {
        classifiers.FILE: classifiers.pack(self._classifier, weights())
      }
    states = self._client_states
    if states is not None:
      more['client_states'] = states.record(done, participants)
    self._checkpoints.save(done, state, **more)
    if states is not None:
      states.prune(participants, self._checkpoints.oldest_round())

  def _evaluated(self, done, weights, evaluate_clients):
    """Returns the test metrics that are due after a round."""
    settings = self._settings
    last = done == settings.total_rounds
    if evaluate_clients is not None and (
      last or done % settings.rounds_per_client_evaluation == 0
    ):
      return evaluate_clients(done, weights())
    per = settings.rounds_per_evaluation
    if last or (done - settings.evaluation_offset) % per == 0:
      return self._evaluate(weights())
    return {}

  def _keys(self, round_num):
    clients = self._settings.clients_per_round or 0
    return client_sampling.sample_keys(
      num_clients=self._num_clients,
      clients_per_round=clients,
      num_groups=self._settings.num_groups or 1,
      seed=self._settings.seed,
      round_num=round_num,
      redeal=self._settings.start_model == 'slot',
    )

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

  Metrics of client training keep their names, with `train_` before `loss` and
  `accuracy`; a value that was not defined (0/0) is left out.
  """
  row = {}
  for name, value in metrics['client_work']['train'].items():
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
