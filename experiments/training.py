"""One run from checked settings to summary.json."""

import logging
import sys

import grpc
import numpy as np
import pandas as pd
import tensorflow as tf

from datasets import partition_report, set_report
from experiments import (
  building,
  checkpoints,
  classifiers,
  client_evaluation,
  client_states,
  curves,
  diversity,
  evaluation,
  hardware,
  metric_log,
  proxy_evaluation,
  pseudo_label_watch,
  recipes,
  round_loop,
  run_folder,
  signals,
  worker_context,
)
from experiments import (
  data as data_lib,
)
from experiments import (
  progress as progress_lib,
)
from experiments import (
  settings as settings_lib,
)
from experiments.flags import UsageError
from tff_ssl import algorithms, metrics
from tff_ssl.simulation import channels


class RunFailed(RuntimeError):
  """Something failed after round 1 had begun."""


def run(settings, folder: run_folder.RunFolder) -> int:
  """Runs an experiment, or resumes it where its folder exists.

  Args:
    settings: From `experiments.settings.make`.
    folder: Its run folder, from `experiments.places.opened`.

  Returns:
    The exit code: 0, or 128 plus the number of the signal that ended it.

  Raises:
    ValueError, TypeError, RunFolderError: If it cannot be run as asked; nothing
      was trained.
    RuntimeError, OSError: If it failed on its way.
  """
  logging.getLogger().setLevel(logging.WARNING)
  tf.config.set_visible_devices([], 'GPU')
  spec = algorithms.find(settings.process, settings.base_process)
  with signals.GracefulStop() as stop:
    # Read now: by the end of the run, the table may be another one.
    recipe_facts = recipes.facts(settings)
    hardware.warn_of_slow_precision(settings.precision)
    data = data_lib.prepare(settings, spec)
    owners = client_evaluation.find_owners(
      settings, data.source, data.partition
    )
    model = building.build_model(
      settings, data.store.input_shape, data.source.num_classes
    )
    over_data = building.build_process(settings, spec, model, data)
    process = building.read_from_store(over_data, data)
    worker_context.install(settings, spec, data.store)
    state = process.initialize()
    folder.require_free_space(
      _bytes_needed(state)
      + client_states.bytes_needed(
        settings, spec, state, data.partition.num_clients
      )
    )
    manager = _open_checkpoints(settings, folder, data, state)
    states = client_states.of_run(settings, spec)
    latest = manager.load_latest(None if states is None else states.resume)
    first_round, state = latest or (0, state)
    _check_rounds_left(settings, first_round)
    _describe(data)
    _warn_of_warmup(settings)
    if owners is not None:
      print(client_evaluation.describe(owners), flush=True)
    views = building.build_views(settings, data.source)
    evaluator = evaluation.Evaluator(model, views, data.source.test)
    loop = round_loop.RoundLoop(
      process,
      settings=settings,
      num_clients=data.partition.num_clients,
      evaluate=evaluator,
      checkpoints=manager,
      diversity=(
        diversity.DiversityProbe(over_data, data, settings)
        if settings.gradient_diversity_clients
        else None
      ),
      client_states=states,
      classifier=classifiers.describe(settings, data),
      observe=proxy_evaluation.observer(
        settings, model, views, data.source.test, folder.path
      ),
      validate=evaluation.validator(model, views, data.source.validation),
      watch=pseudo_label_watch.build(settings, spec, model, views, data),
      read_weights=over_data.read_model_weights,
    )
    # Nothing is refused from here on.
    folder.write_flags(settings.used)
    folder.keep()
    if note := folder.write_versions(first_round):
      print(note, flush=True)
    data_lib.write_records(data, folder)
    try:
      state = _train(
        loop, settings, folder, stop, first_round, state, evaluator, owners
      )
      if not stop.requested:
        weights = process.get_model_weights(state)
        of_owners = {} if owners is None else owners.describe()
        facts = {
          **data.describe(),
          **of_owners,
          **recipe_facts,
          **_communication(settings, process, weights),
        }
        _sum_up(settings, folder, weights, data.source.title, facts)
    except (ValueError, TypeError) as error:
      raise RunFailed(str(error)) from error
    # What follows the first line of these are TensorFlow's names of nodes.
    except tf.errors.OpError as error:
      raise RunFailed(error.message.partition('\n')[0]) from error
    except grpc.RpcError as error:
      reason = channels.first_cause(error)
      raise RunFailed(f'A round failed in the TFF worker: {reason}') from error
    except signals.RoundDropped:
      pass
    if stop.requested:
      print(
        'Stopped; continue with: python -m experiments.run '
        f'--flagfile={folder.flags}',
        file=sys.stderr,
      )
    return stop.exit_code


def _open_checkpoints(settings, folder, data, initial_state):
  """Returns the `CheckpointManager` of a run."""
  fixed = {
    name: value
    for name, value in settings.used.items()
    if name not in settings_lib.FREE
  }
  return checkpoints.CheckpointManager(
    folder.checkpoints,
    initial_state,
    fingerprint={**fixed, 'partition_digest': data.partition.digest()},
  )


def _check_rounds_left(settings, first_round) -> None:
  """Refuses to end a run before the rounds that it has done."""
  if first_round > settings.total_rounds:
    raise UsageError(
      f'--total_rounds={settings.total_rounds} is less than the {first_round} '
      f'rounds that the run in {settings.run_dir} has done: raise it, or name '
      'another folder.'
    )


def _train(loop, settings, folder, stop, first_round, state, evaluator, owners):
  """Trains to the end, or until asked to stop, and returns the state."""
  if first_round:
    print(f'Resuming after round {first_round}.', flush=True)
  board = metric_log.TensorBoardLog(folder.tensorboard)
  progress = progress_lib.Progress(first_round, settings.total_rounds)
  try:
    with (
      metric_log.MetricLog(folder.metrics, first_round + 1) as log,
      client_evaluation.opened(
        evaluator, owners, folder.clients, first_round + 1, log
      ) as evaluate_clients,
    ):
      return loop.run(
        state,
        first_round,
        stop,
        progress,
        (log.append, board.write),
        evaluate_clients,
      )
  finally:
    progress.close()


def _communication(settings, process, weights) -> dict[str, int]:
  """Returns what summary.json says of messages; nothing without clients."""
  if not settings.clients_per_round:
    return {}
  measured = metrics.measure_communication(process, process.form)
  # Models of helpers, which a simulation reads from its disk.
  helpers = (settings.num_helpers or 0) * _num_bytes(weights)
  return {
    'bytes_down_per_client': measured.down + helpers,
    'bytes_up_per_client': measured.up,
  }


def _passes(table) -> dict[str, float]:
  """Returns what summary.json says of passes; nothing without clients.

  Rounds in which no client trained do not count.
  """
  return {
    f'{name}_per_client': float(table[name].median())
    for name in ('forward_passes', 'backward_passes')
    if name in table
  }


def _sum_up(settings, folder, weights, title, facts) -> None:
  """Writes summary.json and the curves, and prints the result."""
  table = pd.read_csv(folder.metrics)
  # Before, the classifier does not train.
  pretraining = settings.pretraining_rounds or 0
  accuracy = table.loc[table['round'] > pretraining, 'accuracy'].dropna()
  half = table.loc[accuracy.index[accuracy >= 0.5], 'round'] - pretraining
  summary = {
    'process': settings.process,
    'dataset': settings.dataset,
    'data': title,
    'model': settings.model,
    'norm': settings.norm,
    'seed': settings.seed,
    'rounds': int(table['round'].iloc[-1]),
    'accuracy': accuracy.iloc[-1],
    'best_accuracy': accuracy.max(),
    'rounds_to_half': int(half.iloc[0]) if len(half) else None,
    'test_loss': evaluation.last_test_loss(table),
    'weights_sha256': evaluation.weights_sha256(weights),
    'seconds': table['seconds'].sum(),
    'seconds_per_round': table['seconds'].median(),
    'seconds_per_client': (
      table['seconds'].median() / settings.clients_per_round
      if settings.clients_per_round
      else None
    ),
    **_passes(table),
    **facts,
    **evaluation.validation_figures(table, pretraining),
    **client_evaluation.last_figures(table),
    **proxy_evaluation.loss_figures(table, pretraining),
    'flags': settings.used,
  }
  folder.write_summary(summary)
  curves.plot(
    folder.metrics,
    folder.path / 'curves.png',
    f'{settings.process} on {settings.dataset}, seed {settings.seed}',
  )
  print(
    f'Final test accuracy {summary["accuracy"]:.4f} after '
    f'{summary["rounds"]} rounds (best {summary["best_accuracy"]:.4f}, '
    f'{facts["test_examples"]} test examples).\n'
    f'Results are in {folder.path}'
  )


def _describe(data) -> None:
  facts = data.describe()
  print(
    f'{data.source.title}\n{facts["clients"]} clients with '
    f'{facts["min_examples"]}/{facts["median_examples"]:g}/'
    f'{facts["max_examples"]} examples (min/median/max), '
    f'{_classes(facts)}, '
    f'{facts["server_examples"]} labelled server examples, '
    f'{facts["labelled_client_examples"]} at clients.',
    flush=True,
  )
  for line in partition_report.lines(data.source, data.partition):
    print(line, flush=True)
  if data.in_sets:
    print(*set_report.lines(data.partition), sep='\n', flush=True)
  if 'min_labels' in facts:
    print(
      f'Each client has {facts["min_labels"]}/{facts["median_labels"]:g}/'
      f'{facts["max_labels"]} labels (min/median/max)'
      + (', others in every pass' if data.redrawn_ratio else '')
      + f'; {facts["clients_without_labels"]} clients have none, '
      f'{facts["clients_without_unlabelled"]} have all.',
      flush=True,
    )


def _classes(facts) -> str:
  if facts['measured_r'] is None:
    return 'classes of no example known'
  return f'{facts["classes"]} classes, measured R {facts["measured_r"]:.3f}'


def _warn_of_warmup(settings) -> None:
  warmup = settings.server_warmup_rounds or 0
  if settings.clients_per_round and warmup >= settings.total_rounds:
    print(
      f'Note: clients do not train in this run: its {settings.total_rounds} '
      f'rounds are all among the first {warmup} of the server alone '
      '(--server_warmup_rounds).',
      flush=True,
    )


def _bytes_needed(state) -> int:
  """Three checkpoints (two kept, one being written) and the other files."""
  # Beside the state a checkpoint has the classifier, which is no larger.
  return 3 * 2 * _num_bytes(state) + 32 * 2**20


def _num_bytes(structure) -> int:
  """Returns the size of a structure of arrays."""
  return sum(np.asarray(value).nbytes for value in tf.nest.flatten(structure))
