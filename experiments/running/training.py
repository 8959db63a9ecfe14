"""Trains a run, from its first round to summary.json, or describes it."""

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator

import tensorflow as tf

from experiments.artifacts import (
  checkpoints,
  csv_files,
  run_folder,
  versions,
)
from experiments.config import catalogue, command_line
from experiments.config import settings as settings_lib
from experiments.measuring import (
  client_evaluation,
  evaluation,
  pseudo_labels,
)
from experiments.preparing import (
  building,
  cohort,
  description,
  execution_context,
  run_data,
)
from experiments.running import (
  calibration,
  classifiers,
  client_state_files,
  measurements,
  participants,
  progress,
  round_loop,
  run_checkpoints,
  summary,
)
from tff_ssl import compiled
from tff_ssl.simulation import client_sampling, processes


class RunFailed(RuntimeError):
  """Something failed after round 1 had begun."""


def run(
  opened: building.Run,
  folder: run_folder.RunFolder,
  recipe_facts: dict[str, object],
  stop: command_line.GracefulStop,
) -> None:
  """Trains a run, or resumes it; its summary says `recipe_facts`, too.

  Errors before round 1 are `ValueError`, `TypeError` or `RunFolderError`, later
  ones `RuntimeError` or `OSError`.
  """
  settings = opened.settings
  owners = client_evaluation.find_owners(opened.data, settings)
  _install_context(opened)
  state = opened.process.initialize()
  folder.require_free_space(_bytes_needed(opened, state))
  saved = _open_checkpoints(opened, folder, state)
  first_round, state = saved.load_latest() or (0, state)
  run_folder.check_rounds_left(settings, first_round)
  _show(description.lines_of_data(opened.data))
  _show(description.lines_of_aggregator(settings))
  _show(description.lines_of_cohort(settings))
  _show(description.lines_of_warmup(settings))
  if owners is not None:
    _show([client_evaluation.describe(owners)])
  measured = measurements.build(opened, folder, first_round, owners)
  # Nothing is refused from here on. A round that is dropped is repeated later.
  with _failures_of_a_run(), contextlib.suppress(command_line.RoundDropped):
    _begin(opened, folder, saved, first_round)
    state = _train(opened, folder, saved, measured, first_round, state, stop)
    if not stop.requested:
      _write_results(opened, folder, saved, measured, recipe_facts, state)
  if stop.requested:
    print(
      'Stopped; continue with: python -m experiments.run '
      f'--flagfile={folder.path / run_folder.FLAGS}',
      file=sys.stderr,
    )


def _begin(opened, folder, saved, first_round) -> None:
  """Writes what there is before the first round; removes what no longer is."""
  folder.write_flags(opened.settings.used)
  folder.keep()
  saved.finish_pruning()
  # Of fewer rounds, or of the same: what it says of the files ends here.
  (folder.path / run_folder.SUMMARY).unlink(missing_ok=True)
  if note := versions.write(folder, first_round):
    _show([note])
  run_data.write_records(opened.data, folder)


def try_out(opened, settings, found: dict[str, object]) -> None:
  """Says what a run would do, and how long it would take, without training.

  Args:
    opened: The run, with a folder of its own for states of clients.
    settings: The same with the folder that it would have.
    found: Gets what is said: as summary.json says it, as far as it is known,
      with `rounds_done` of the run in the folder, and what
      `calibration.measure` finds.
  """
  rounds_done = run_folder.rounds_done(settings)
  folder = description.lines_of_folder(settings)
  settings = opened.settings
  client_evaluation.find_owners(opened.data, settings)
  measurements.pseudo_labels_by_class(opened)
  _show(['', 'Settings (--help says where each value comes from):'])
  _show(f'--{name}={value}' for name, value in settings.used.items())
  _show(['', 'Data:', *description.lines_of_data(opened.data)])
  _show(description.lines_of_aggregator(settings))
  _show(description.lines_of_cohort(settings))
  _show(['', 'Folder:', *folder])
  sent = description.communication(
    settings, opened.process, opened.model.initial_weights(settings.seed)
  )
  _show(['', 'Costs:', *description.lines_of_costs(opened, sent)])
  _show(description.lines_of_warmup(settings))
  left, timed = settings.total_rounds - rounds_done, {}
  if left and not settings.cluster:
    _install_context(opened)
    with _failures_of_a_run():
      timed = calibration.measure(opened, _cohorts(opened), left)
    _show(
      [
        f'A round takes {timed["seconds_per_round"]:,.2f} s on this machine, '
        f'as it is now: about {command_line.in_words(3600 * timed["hours"])} '
        f'for the {left} that are left, with their evaluations.'
      ]
    )
  # At the end: a command that fails prints no document.
  found |= {
    'data': opened.data.source.title,
    'rounds': settings.total_rounds,
    'rounds_done': rounds_done,
    **opened.data.describe(),
    **sent,
    **timed,
    'flags': settings.used,
  }
  _show(['', 'Nothing was trained (--dry_run).'])


def export_form(opened: building.Run) -> None:
  """Writes the process of a run for a platform, without training."""
  file = opened.settings.export_form
  compiled.save_process(opened.over_data, file)
  _show([f'{file} holds the process; nothing was trained (--export_form).'])


def _show(lines: Iterable[str]) -> None:
  for line in lines:
    print(line, flush=True)


def _install_context(opened) -> None:
  execution_context.install(
    opened.settings,
    store_path=opened.data.store.path,
    client_state_folder=_client_state_folder(opened),
  )


def _client_state_folder(opened) -> str | None:
  if not opened.spec.takes('client_state_dir'):
    return None
  return run_folder.client_states(opened.settings.run_dir)


def _bytes_needed(opened, state) -> int:
  """Returns the bytes of checkpoints, client states and the other files."""
  settings = opened.settings
  # Two checkpoints are kept, maybe the last sound one, and one is being
  # written. Each has the state and the classifier, which is no larger.
  checkpoints_at_once = 3 if settings.on_collapse in (None, 'warn') else 4
  needed = checkpoints_at_once * 2 * description.num_bytes(state) + 32 * 2**20
  if opened.spec.takes('client_state_dir'):
    needed += client_state_files.bytes_needed(
      state,
      models_in_state=opened.spec.models_in_state,
      num_clients=opened.data.partition.num_clients,
      clients_per_round=settings.clients_per_round,
      rounds_per_checkpoint=settings.rounds_per_checkpoint,
    )
  return needed


def _open_checkpoints(
  opened, folder, initial_state
) -> run_checkpoints.RunCheckpoints:
  settings = opened.settings
  fingerprint = {
    name: value
    for name, value in settings.used.items()
    if name not in settings_lib.FREE
  }
  for name, digest in opened.data.digests().items():
    fingerprint[name] = f'{checkpoints.SHA256}{digest}'
  # With --target_epsilon it follows from the rounds.
  if settings.noise_multiplier:
    fingerprint['noise_multiplier'] = settings.noise_multiplier
  states = _client_state_folder(opened)
  return run_checkpoints.RunCheckpoints(
    checkpoints.CheckpointManager(
      folder.path / run_folder.CHECKPOINTS, initial_state, fingerprint
    ),
    client_states=(
      None
      if states is None
      else client_state_files.ClientStateFiles(states, settings.seed)
    ),
    classifier=classifiers.describe(opened),
    on_collapse=settings.on_collapse or 'warn',
  )


def _train(opened, folder, saved, measured, first_round, state, stop):
  """Trains to the last round, and goes back where a run collapses."""
  while True:
    with _opened_logs(opened, folder, saved, measured, first_round) as (
      test,
      logs,
      shown,
    ):
      try:
        return _build_loop(opened, saved).run(
          state,
          first_round,
          stop=stop,
          measurements=[test, *measured.after],
          before=measured.before,
          checks=measured.checks,
          logs=logs,
          show=shown.update,
        )
      except pseudo_labels.CollapseError as collapse:
        if opened.settings.on_collapse != 'rewind':
          raise
        collapsed = collapse.finished
    # With the logs closed: they are opened anew, without the rounds dropped.
    first_round, state = saved.go_back(collapsed, opened.process.initialize())
    print(
      f'Round {collapsed.number} collapses: back to round {first_round}, and '
      f'clients pause up to round {collapsed.number} (--on_collapse=rewind).',
      flush=True,
    )


@contextlib.contextmanager
def _opened_logs(opened, folder, saved, measured, first_round):
  """Opens what is written in each round.

  Yields the `TestMeasurement`, the logs of rows and the `Progress`.
  """
  settings, path = opened.settings, folder.path
  if first_round:
    _show([f'Resuming after round {first_round}.'])
  board = progress.TensorBoardLog(path / run_folder.TENSORBOARD)
  shown = progress.Progress(
    first_round, settings.total_rounds, catalogue.phases_of(settings.used)
  )
  with (
    contextlib.closing(shown),
    csv_files.MetricLog(
      path / run_folder.METRICS, first_round + 1, saved.digests
    ) as log,
    log.beside(run_folder.CLIENTS, measured.owners is not None) as clients,
    log.beside(
      run_folder.PSEUDO_LABELS, measured.by_class is not None
    ) as classes,
  ):
    saved.log = log
    if measured.by_class is not None:
      measured.by_class.log = classes
    evaluate_clients = functools.partial(
      client_evaluation.evaluate, measured.evaluator, measured.owners, clients
    )
    test = evaluation.TestMeasurement(
      measured.evaluator,
      total_rounds=settings.total_rounds,
      rounds_per_evaluation=settings.rounds_per_evaluation,
      evaluation_offset=settings.evaluation_offset,
      evaluate_clients=None if clients is None else evaluate_clients,
      rounds_per_client_evaluation=settings.rounds_per_client_evaluation,
    )
    yield test, (log.append, board.write), shown


def _cohorts(opened) -> participants.Cohorts:
  settings = opened.settings
  return participants.Cohorts(
    functools.partial(
      client_sampling.sample_keys,
      num_clients=opened.data.partition.num_clients,
      clients_per_round=settings.clients_per_round or 0,
      num_groups=settings.num_groups or 1,
      seed=settings.seed,
      redeal=settings.start_model == 'slot',
      draw=cohort.draw(settings, opened.data),
    ),
    opened.faults,
    settings.min_separation or 1,
  )


def _build_loop(opened, saved) -> round_loop.RoundLoop:
  settings = opened.settings
  return round_loop.RoundLoop(
    opened.process,
    cohorts=_cohorts(opened),
    checkpoints=saved,
    total_rounds=settings.total_rounds,
    rounds_per_checkpoint=settings.rounds_per_checkpoint,
    read_weights=opened.over_data.read_model_weights,
    min_completion=settings.min_completion or 0.0,
  )


def _write_results(opened, folder, saved, measured, recipe_facts, state):
  """Writes and prints what a finished run says of itself."""
  settings, data = opened.settings, opened.data
  if settings.clients_per_round:
    saved.participation.write(
      folder.path / run_folder.PARTICIPATION, data.partition.client_names
    )
  weights = opened.process.get_model_weights(state)
  facts = {
    'data': data.source.title,
    'partition_digest': data.partition.digest(),
    **data.describe(),
    **({} if measured.owners is None else measured.owners.describe()),
    **recipe_facts,
    'rewinds': saved.rewinds.pauses,
    **description.communication(settings, opened.process, weights),
    **({} if measured.privacy is None else measured.privacy.facts()),
  }
  by_class = evaluation.ClassFigures(
    measured.evaluator.scores(weights),
    data.source.test.labels,
    data.source.class_names,
  )
  _show(summary.write(settings, folder, weights, facts, by_class))


@contextlib.contextmanager
def _failures_of_a_run() -> Iterator[None]:
  """Turns the errors of a run that has begun into `RunFailed`."""
  try:
    yield
  except (ValueError, TypeError, run_folder.RunFolderError) as error:
    raise RunFailed(str(error)) from error
  except BrokenPipeError:
    raise  # Of the output: nobody reads it any more.
  except OSError as error:
    raise RunFailed(
      f'{error.filename or "A file"}: {error.strerror or error}; make room or '
      'restore access, and start again to continue.'
    ) from error
  except tf.errors.OpError as error:
    raise RunFailed(
      f'A round failed: {processes.first_cause(error)}; mend that, and start '
      'again to continue.'
    ) from error
