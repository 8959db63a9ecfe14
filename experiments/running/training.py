"""One run from checked settings to summary.json."""

import contextlib
import logging
import sys
from collections.abc import Iterator

import grpc
import tensorflow as tf

from experiments.artifacts import (
  checkpoints,
  metric_log,
  places,
  run_folder,
)
from experiments.config import settings as settings_lib
from experiments.measuring import (
  client_evaluation,
  evaluation,
  proxy_evaluation,
  pseudo_label_watch,
)
from experiments.running import (
  building,
  classifiers,
  client_states,
  description,
  diversity,
  hardware,
  round_loop,
  signals,
  summary,
  worker_context,
)
from experiments.running import (
  data as data_lib,
)
from experiments.running import (
  progress as progress_lib,
)
from tff_ssl.simulation import channels


class RunFailed(RuntimeError):
  """Something failed after round 1 had begun."""


def run(
  settings, folder: run_folder.RunFolder, recipe_facts: dict[str, object]
) -> int:
  """Runs an experiment, or resumes it where its folder exists.

  Args:
    settings: From `experiments.config.settings.make`.
    folder: Its run folder, from `experiments.artifacts.places.opened`.
    recipe_facts: What its summary says of its recipe.

  Returns:
    The exit code: 0, or 128 plus the number of the signal that ended it.

  Raises:
    ValueError, TypeError, RunFolderError: If it cannot be run as asked; nothing
      was trained.
    RuntimeError, OSError: If it failed on its way.
  """
  _quieten()
  with signals.GracefulStop() as stop:
    hardware.warn_of_slow_precision(settings.precision)
    opened = building.Run.open(settings)
    data, process = opened.data, opened.process
    owners = client_evaluation.find_owners(
      settings, data.source, data.partition
    )
    worker_context.install(settings, opened.spec, data.store)
    state = process.initialize()
    folder.require_free_space(
      _bytes_needed(state)
      + client_states.bytes_needed(
        settings, opened.spec, state, data.partition.num_clients
      )
    )
    manager = _open_checkpoints(settings, folder, data, state)
    states = client_states.of_run(settings, opened.spec)
    latest = manager.load_latest(None if states is None else states.resume)
    first_round, state = latest or (0, state)
    places.check_rounds_left(settings, first_round)
    _show(description.lines_of_data(data))
    _show(description.lines_of_warmup(settings))
    if owners is not None:
      _show([client_evaluation.describe(owners)])
    evaluator = evaluation.Evaluator(
      opened.model, opened.views, data.source.test
    )
    loop = _build_loop(opened, evaluator, manager, states, folder)
    # Nothing is refused from here on.
    folder.write_flags(settings.used)
    folder.keep()
    if note := folder.write_versions(first_round):
      _show([note])
    data_lib.write_records(data, folder)
    with _failures_of_a_run():
      state = _train(
        loop, settings, folder, stop, first_round, state, evaluator, owners
      )
      if not stop.requested:
        weights = process.get_model_weights(state)
        facts = {
          'data': data.source.title,
          **data.describe(),
          **({} if owners is None else owners.describe()),
          **recipe_facts,
          **description.communication(settings, process, weights),
        }
        _show(summary.write(settings, folder, weights, facts))
    if stop.requested:
      print(
        'Stopped; continue with: python -m experiments.run '
        f'--flagfile={folder.flags}',
        file=sys.stderr,
      )
    return stop.exit_code


def try_out(settings) -> int:
  """Prepares a run and says what it would do, without training.

  Args:
    settings: From `experiments.config.settings.make`.

  Returns:
    The exit code 0.

  Raises:
    ValueError, TypeError: If it cannot be run as asked.
    RuntimeError, OSError: If data cannot be prepared.
  """
  _quieten()
  opened = building.Run.open(settings)
  client_evaluation.find_owners(
    settings, opened.data.source, opened.data.partition
  )
  _show(['', 'Settings (--help says where each value comes from):'])
  _show(description.lines_of_settings(settings))
  _show(['', 'Data:', *description.lines_of_data(opened.data)])
  _show(['', 'Folder:', *description.lines_of_folder(settings)])
  _show(['', 'Costs:', *description.lines_of_costs(opened)])
  _show(description.lines_of_warmup(settings))
  _show(['', 'Nothing was trained (--dry_run).'])
  return 0


def _quieten() -> None:
  logging.getLogger().setLevel(logging.WARNING)
  tf.config.set_visible_devices([], 'GPU')


def _show(lines) -> None:
  for line in lines:
    print(line, flush=True)


def _build_loop(opened, evaluator, manager, states, folder):
  """Returns the `RoundLoop` of a run, with all that it measures."""
  settings, data = opened.settings, opened.data
  model, views = opened.model, opened.views
  return round_loop.RoundLoop(
    opened.process,
    settings=settings,
    num_clients=data.partition.num_clients,
    evaluate=evaluator,
    checkpoints=manager,
    diversity=(
      diversity.DiversityProbe(opened.over_data, data, settings)
      if settings.gradient_diversity_clients
      else None
    ),
    client_states=states,
    classifier=classifiers.describe(settings, data),
    observe=proxy_evaluation.observer(
      settings, model, views, data.source.test, folder.path
    ),
    validate=evaluation.validator(model, views, data.source.validation),
    watch=pseudo_label_watch.build(settings, opened.spec, model, views, data),
    read_weights=opened.over_data.read_model_weights,
  )


@contextlib.contextmanager
def _failures_of_a_run() -> Iterator[None]:
  """Turns what may go wrong on the way into `RunFailed`."""
  try:
    yield
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


def _train(loop, settings, folder, stop, first_round, state, evaluator, owners):
  """Trains to the end, or until asked to stop, and returns the state."""
  if first_round:
    print(f'Resuming after round {first_round}.', flush=True)
  board = metric_log.TensorBoardLog(folder.tensorboard)
  progress = progress_lib.Progress(
    first_round, settings.total_rounds, progress_lib.phases_of(settings)
  )
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


def _bytes_needed(state) -> int:
  """Three checkpoints (two kept, one being written) and the other files."""
  # Beside the state a checkpoint has the classifier, which is no larger.
  return 3 * 2 * description.num_bytes(state) + 32 * 2**20
