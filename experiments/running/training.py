"""Trains a run, from its first round to summary.json, or describes it."""

import contextlib
import functools
import sys
from collections.abc import Iterator

import tensorflow as tf

from experiments.artifacts import (
  checkpoints,
  metric_log,
  places,
  run_folder,
)
from experiments.config import parts_of_run
from experiments.config import settings as settings_lib
from experiments.measuring import (
  class_figures,
  client_evaluation,
  evaluation,
  proxy_evaluation,
  pseudo_label_counts,
  pseudo_label_watch,
  pseudo_labels_by_class,
)
from experiments.measuring.finished_round import (
  Measurement,
  MeasurementBefore,
)
from experiments.preparing import (
  building,
  description,
  private_noise,
  taking_part,
)
from experiments.preparing import data as data_lib
from experiments.running import (
  classifiers,
  client_state_files,
  cohorts,
  diversity,
  execution_context,
  privacy_loss,
  round_loop,
  run_checkpoints,
  signals,
  summary,
)
from experiments.running import progress as progress_lib
from tff_ssl import objectives, saved_process
from tff_ssl.simulation import client_sampling, errors


class RunFailed(RuntimeError):
  """Something failed after round 1 had begun."""


def run(
  opened: building.Run,
  folder: run_folder.RunFolder,
  recipe_facts: dict[str, object],
  stop: signals.GracefulStop,
) -> None:
  """Trains a run, or resumes it where its folder holds a part of it.

  Args:
    opened: The run.
    folder: Its run folder, from `experiments.artifacts.places.opened`.
    recipe_facts: What its summary says of its recipe.
    stop: Asks to stop; the folder then has no summary yet.

  Raises:
    ValueError, TypeError, RunFolderError: If it cannot be run as asked; nothing
      was trained.
    RuntimeError, OSError: If it failed on its way.
  """
  settings, data, process = opened.settings, opened.data, opened.process
  owners = _find_owners(opened)
  _install_context(opened)
  state = process.initialize()
  folder.require_free_space(_bytes_needed(opened, state))
  saved = _open_checkpoints(opened, folder, state)
  first_round, state = saved.load_latest() or (0, state)
  places.check_rounds_left(settings, first_round)
  _show(description.lines_of_data(data))
  _show(description.lines_of_cohort(settings))
  _show(description.lines_of_warmup(settings))
  if owners is not None:
    _show([client_evaluation.describe(owners)])
  evaluator = evaluation.Evaluator(opened.model, opened.views, data.source.test)
  watch = _build_watch(opened)
  labels_by_class = _build_pseudo_label_counts(opened)
  further = _further_measurements(opened, folder, watch)
  if labels_by_class is not None:
    further.append(labels_by_class)
  before = _measurements_before(opened)
  loss = _privacy_loss(opened, folder, first_round)
  if loss is not None:
    before.append(loss.begin)
    further.append(loss.measure)
  # Nothing is refused from here on.
  folder.write_flags(settings.used)
  folder.keep()
  saved.finish_pruning()
  # Of fewer rounds, or of the same: what it says of the files ends here.
  folder.summary.unlink(missing_ok=True)
  if note := folder.write_versions(first_round):
    _show([note])
  data_lib.write_records(data, folder)
  with _failures_of_a_run():
    while True:
      with _opened_logs(
        settings, folder, first_round, evaluator, owners, labels_by_class, saved
      ) as (test, logs, progress):
        try:
          state = _build_loop(opened, saved).run(
            state,
            first_round,
            stop=stop,
            measurements=[test, *further],
            before=before,
            checks=[] if watch is None else [watch.check],
            logs=logs,
            show=progress.update,
          )
          break
        except pseudo_label_watch.CollapseError as collapse:
          if settings.on_collapse != 'rewind':
            raise
          collapsed = collapse.finished
      first_round, state = saved.go_back(collapsed, process.initialize())
      _show(
        [
          f'Round {collapsed.number} collapses: back to round {first_round}, '
          f'and clients pause up to round {collapsed.number} '
          '(--on_collapse=rewind).'
        ]
      )
    if not stop.requested:
      if settings.clients_per_round:
        saved.participation.write(
          folder.participation, data.partition.client_names
        )
      weights = process.get_model_weights(state)
      facts = {
        'data': data.source.title,
        'partition_digest': data.partition.digest(),
        **data.describe(),
        **({} if owners is None else owners.describe()),
        **recipe_facts,
        'rewinds': saved.rewinds.pauses,
        **description.communication(settings, process, weights),
        **({} if loss is None else loss.facts()),
      }
      by_class = class_figures.ClassFigures(
        evaluator.scores(weights),
        data.source.test.labels,
        data.source.class_names,
      )
      _show(summary.write(settings, folder, weights, facts, by_class))
  if stop.requested:
    print(
      'Stopped; continue with: python -m experiments.run '
      f'--flagfile={folder.flags}',
      file=sys.stderr,
    )


def try_out(opened: building.Run) -> None:
  """Says what a run would do, without training.

  Args:
    opened: The run.

  Raises:
    ValueError, TypeError: If it cannot be run as asked.
  """
  settings = opened.settings
  _find_owners(opened)
  _build_pseudo_label_counts(opened)
  _show(['', 'Settings (--help says where each value comes from):'])
  _show(description.lines_of_settings(settings))
  _show(['', 'Data:', *description.lines_of_data(opened.data)])
  _show(description.lines_of_cohort(settings))
  _show(['', 'Folder:', *description.lines_of_folder(settings)])
  _show(['', 'Costs:', *description.lines_of_costs(opened)])
  _show(description.lines_of_warmup(settings))
  _show(['', 'Nothing was trained (--dry_run).'])


def export_form(opened: building.Run) -> None:
  """Writes the process of a run for a platform, without training.

  Args:
    opened: The run.

  Raises:
    OSError: If the file cannot be written.
  """
  file = opened.settings.export_form
  saved_process.save_process(opened.over_data, file)
  _show([f'{file} holds the process; nothing was trained (--export_form).'])


def _show(lines) -> None:
  for line in lines:
    print(line, flush=True)


def _find_owners(opened) -> client_evaluation.Owners | None:
  """Returns the owners of the test examples if clients are evaluated."""
  settings = opened.settings
  return client_evaluation.find_owners(
    opened.data.source,
    opened.data.partition,
    rounds_per_client_evaluation=settings.rounds_per_client_evaluation,
    seed=settings.seed,
  )


def _install_context(opened) -> None:
  settings, has_states = opened.settings, opened.spec.keeps_client_state
  execution_context.install(
    settings,
    store_path=opened.data.store.path,
    client_state_folder=(
      run_folder.client_states(settings.run_dir) if has_states else None
    ),
  )


def _open_checkpoints(opened, folder, initial_state):
  """Returns the `RunCheckpoints` of a run."""
  settings, data = opened.settings, opened.data
  fixed = {
    name: value
    for name, value in settings.used.items()
    if name not in settings_lib.FREE
  }
  states = None
  if opened.spec.keeps_client_state:
    states = client_state_files.ClientStateFiles(
      run_folder.client_states(settings.run_dir), settings.seed
    )
  return run_checkpoints.RunCheckpoints(
    checkpoints.CheckpointManager(
      folder.checkpoints,
      initial_state,
      fingerprint={
        **fixed,
        **{
          name: f'{run_folder.SHA256}{digest}'
          for name, digest in data.digests().items()
        },
        # With --target_epsilon it follows from the rounds.
        **(
          {'noise_multiplier': settings.noise_multiplier}
          if settings.noise_multiplier
          else {}
        ),
      },
    ),
    client_states=states,
    classifier=classifiers.describe(
      opened.views,
      data,
      model=settings.model,
      norm=settings.norm,
      precision=settings.precision,
      pretraining_rounds=settings.pretraining_rounds,
    ),
    on_collapse=settings.on_collapse or 'warn',
  )


def _privacy_loss(
  opened, folder, first_round
) -> privacy_loss.PrivacyLoss | None:
  """Returns what counts the privacy spent; `None` without noise."""
  settings = opened.settings
  account = private_noise.account(settings, opened.data.partition.num_clients)
  if account is None:
    return None
  return privacy_loss.PrivacyLoss(
    account,
    folder.path,
    rounds_done=first_round,
    first_round=private_noise.first_private_round(settings),
    target_epsilon=settings.target_epsilon,
  )


def _build_watch(opened) -> pseudo_label_watch.PseudoLabelWatch | None:
  """Returns what watches the pseudo-labels, where there are any."""
  settings = opened.settings
  return pseudo_label_watch.build(
    opened.model,
    opened.views,
    opened.data,
    has_server_training=opened.spec.has_server_training,
    select=pseudo_label_counts.selection_of(settings),
    seed=settings.seed,
    on_collapse=settings.on_collapse,
  )


def _build_pseudo_label_counts(
  opened,
) -> pseudo_labels_by_class.PseudoLabelsByClass | None:
  """Returns what counts pseudo-labels by class, where that is asked for."""
  settings, data = opened.settings, opened.data
  if not settings.pseudo_label_examples:
    return None
  return pseudo_labels_by_class.PseudoLabelsByClass(
    opened.model,
    opened.views,
    pseudo_labels_by_class.draw(
      data, settings.pseudo_label_examples, settings.seed
    ),
    data.source.class_names,
    select=pseudo_label_counts.selection_of(settings),
    seed=settings.seed,
  )


def _further_measurements(opened, folder, watch) -> list[Measurement]:
  """Returns what is measured after the test split, in this order."""
  settings, data = opened.settings, opened.data
  model, views = opened.model, opened.views
  further = []
  if data.source.validation is not None:
    further.append(
      evaluation.ValidationMeasurement(model, views, data.source.validation)
    )
  if watch is not None:
    further.append(watch)
  if settings.proxy_task is not None:
    task = objectives.PROXY_TASKS[settings.proxy_task]
    further.append(
      proxy_evaluation.ProxyObserver(
        proxy_evaluation.ProxyTest(model, task, views, data.source.test),
        folder.path,
        title=f'{settings.process} on {settings.dataset}, seed {settings.seed}',
        total_rounds=settings.total_rounds,
        pretraining_rounds=settings.pretraining_rounds,
      )
    )
  if settings.gradient_diversity_clients:
    further.append(
      diversity.OfFixedClients(
        _diversity_meter(opened),
        num_clients=data.partition.num_clients,
        clients_measured=settings.gradient_diversity_clients,
        redeal=settings.start_model == 'slot',
      )
    )
  return further


def _measurements_before(opened) -> list[MeasurementBefore]:
  """Returns what is measured before each round."""
  if opened.settings.gradient_diversity_of != 'participants':
    return []
  return [diversity.OfParticipants(_diversity_meter(opened))]


def _diversity_meter(opened) -> diversity.Meter:
  settings = opened.settings
  return diversity.Meter(
    opened.over_data,
    opened.data,
    rounds_between=settings.rounds_per_gradient_diversity,
    total_rounds=settings.total_rounds,
    seed=settings.seed,
  )


def _build_loop(opened, saved):
  """Returns the `RoundLoop` of a run."""
  settings = opened.settings
  return round_loop.RoundLoop(
    opened.process,
    cohorts=cohorts.Cohorts(
      functools.partial(
        client_sampling.sample_keys,
        num_clients=opened.data.partition.num_clients,
        clients_per_round=settings.clients_per_round or 0,
        num_groups=settings.num_groups or 1,
        seed=settings.seed,
        redeal=settings.start_model == 'slot',
        draw=taking_part.draw(settings, opened.data),
      ),
      taking_part.client_faults(settings, opened.data),
      settings.min_separation or 1,
    ),
    checkpoints=saved,
    total_rounds=settings.total_rounds,
    rounds_per_checkpoint=settings.rounds_per_checkpoint,
    read_weights=opened.over_data.read_model_weights,
    min_completion=settings.min_completion or 0.0,
  )


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
      f'A round failed: {errors.first_cause(error)}; mend that, and start '
      'again to continue.'
    ) from error
  except signals.RoundDropped:
    pass


@contextlib.contextmanager
def _opened_logs(
  settings, folder, first_round, evaluator, owners, labels_by_class, saved
):
  """Opens what is written in each round.

  Yields:
    The `TestMeasurement`, the logs of rows and the `Progress`.
  """
  if first_round:
    print(f'Resuming after round {first_round}.', flush=True)
  board = metric_log.TensorBoardLog(folder.tensorboard)
  progress = progress_lib.Progress(
    first_round,
    settings.total_rounds,
    parts_of_run.phases_of(settings.used),
  )
  try:
    with (
      metric_log.MetricLog(
        folder.metrics, first_round + 1, saved.digests
      ) as log,
      client_evaluation.opened(
        evaluator, owners, folder.clients, first_round + 1, log
      ) as evaluate_clients,
      pseudo_labels_by_class.opened(
        labels_by_class, folder.pseudo_labels, first_round + 1, log
      ),
    ):
      saved.log = log
      test = evaluation.TestMeasurement(
        evaluator,
        total_rounds=settings.total_rounds,
        rounds_per_evaluation=settings.rounds_per_evaluation,
        evaluation_offset=settings.evaluation_offset,
        evaluate_clients=evaluate_clients,
        rounds_per_client_evaluation=settings.rounds_per_client_evaluation,
      )
      yield test, (log.append, board.write), progress
  finally:
    progress.close()


def _bytes_needed(opened, state) -> int:
  """Returns the bytes of checkpoints, client states and the other files."""
  settings = opened.settings
  # Two checkpoints are kept, maybe the last sound one, and one is being
  # written. Each has the state and the classifier, which is no larger.
  checkpoints_at_once = 3 if settings.on_collapse in (None, 'warn') else 4
  needed = checkpoints_at_once * 2 * description.num_bytes(state) + 32 * 2**20
  if opened.spec.keeps_client_state:
    needed += client_state_files.bytes_needed(
      state,
      models_in_state=opened.spec.models_in_state,
      num_clients=opened.data.partition.num_clients,
      clients_per_round=settings.clients_per_round,
      rounds_per_checkpoint=settings.rounds_per_checkpoint,
    )
  return needed
