"""Trains a process on a data set: `python -m experiments.run --help`."""

import contextlib
import gc
import signal
import sys

from experiments.artifacts import checkpoints, results, run_folder
from experiments.config import catalogue, command_line, flags, help_page
from experiments.preparing import execution_context
from experiments.tables import recipes
from tff_ssl import models

# Exit codes: 0 done, 1 failed on the way, 2 cannot be run as asked
# (`command_line.REFUSED`); a signal that ended the run gives 128 plus its
# number, and so does a reader of its output that has gone (that of SIGPIPE).
_FAILED = 1
# Wrong input, found before round 1.
_REFUSALS = (ValueError, TypeError, run_folder.RunFolderError)
# What ends a run on its way; it can be resumed.
_FAILURES = (OSError, RuntimeError)


def main(argv: list[str]) -> int:
  """Runs the command line `argv` and returns the exit code."""
  try:
    given = flags.parse(argv)
  except command_line.UsageError as error:
    return _complain(error, command_line.REFUSED)
  if given.pop('json', False):
    with command_line.json_output() as found:
      return _run(given, found)
  return _run(given, {})


def _run(given: dict[str, object], found: dict[str, object]) -> int:
  """Does what flags say, and puts what `--json` prints in `found`."""
  try:
    if given.get('help'):
      _help(given)
      return 0
    if given.get('list'):
      _list(found)
      return 0
    if 'seeds' in given or given.get('with_lower_bound'):
      from experiments.tables import seeds

      return (_try_out if given.get('dry_run') else seeds.run)(given, found)
    # First: a user's own part may import TensorFlow.
    execution_context.choose_kernels(given.get('clients_per_round'))
    settings = recipes.make(given)
    if settings.recipe:
      _tell_changes(settings)
    if settings.recommendation:
      print(settings.recommendation, flush=True)
  except command_line.UsageError as error:
    return _complain(error, command_line.REFUSED)
  try:
    if settings.dry_run or settings.export_form:
      return _inspect(settings, found)
    with run_folder.opened(settings) as folder:
      # Read now: by the end of the run, the table may be another one.
      facts = recipes.facts(settings)
      building, training = _import_runner()
      with command_line.GracefulStop() as stop:
        opened = building.Run.open(settings)
        training.run(opened, folder, facts, stop)
      if not stop.requested:
        found.update(results.of_folder(folder.path))
      return stop.exit_code
  except KeyboardInterrupt:  # During the import; later ones are handled.
    return 128 + signal.SIGINT
  except _REFUSALS as error:
    return _complain(error, command_line.REFUSED)
  except _FAILURES as error:
    if isinstance(error, BrokenPipeError) and command_line.is_unread():
      raise  # `command_line.run` ends the process.
    return _complain(error, _FAILED)


def _try_out(given, found) -> int:
  """Says what runs of several seeds or with a bound would do.

  It ends at the first that is refused.
  """
  from experiments.tables import seeds

  documents = {'runs': [], 'bounds': []}
  for pair in seeds.plan_with_bounds(given):
    for one, documents_of_kind in zip(pair, documents.values(), strict=False):
      print(f'--- {one.name}: {one.settings.run_dir}', flush=True)
      documents_of_kind.append({})
      flags_of_one = {**one.given, 'dry_run': True}
      if exit_code := _run(flags_of_one, documents_of_kind[-1]):
        return exit_code
  found |= {kind: each for kind, each in documents.items() if each}
  return 0


def _inspect(settings, found: dict[str, object]) -> int:
  """Does what trains nothing, and returns the exit code.

  A signal ends it at once; its scratch folder is removed.
  """
  with command_line.GracefulStop() as stop:
    with (
      contextlib.suppress(command_line.RoundDropped),
      stop.droppable(),
      run_folder.inspected(settings) as on_the_side,
    ):
      building, training = _import_runner()
      if settings.dry_run:
        training.try_out(building.Run.open(on_the_side), settings, found)
      else:
        training.export_form(building.Run.open(settings))
        found['export_form'] = settings.export_form
    return stop.exit_code


def _help(given: dict[str, object]) -> None:
  if not {'process', 'recipe'} & given.keys():
    print(help_page.start())
    return
  if 'seeds' in given:
    from experiments.tables import seeds

    seeds.plan(given)
  print(help_page.of_run(recipes.make(given)))


def _import_runner():
  """Returns the modules `building` and `training`, which import TensorFlow.

  The import takes seconds. Its objects stay for good, and Python would search
  them for garbage again and again. That would take a fifth of the time of the
  import, and much of the time of building a process.
  """
  is_first = 'experiments.running.training' not in sys.modules
  if is_first:
    print('Loading TensorFlow Federated ...', flush=True)
    gc.disable()
  try:
    from experiments.preparing import building
    from experiments.running import training
  finally:
    gc.enable()
  if is_first:  # Later, this would keep garbage, too.
    gc.freeze()
  return building, training


def _complain(error: Exception, exit_code: int) -> int:
  text = command_line.sentence(error)
  if isinstance(error, checkpoints.FingerprintMismatch):
    text = str(error)  # With a table.
  print(f'error: {text}', file=sys.stderr)
  return exit_code


def _tell_changes(settings) -> None:
  changes = [
    f'{name} {own} -> {now}'
    for name, (own, now) in recipes.changes(settings).items()
  ]
  if changes:
    print(
      f'No longer the recipe {settings.recipe}: {", ".join(changes)}.',
      flush=True,
    )


def _list(found) -> None:
  for title, choices in (
    ('processes', catalogue.REGISTRIES['process']),
    ('data sets', catalogue.REGISTRIES['dataset']),
    ('partitions', catalogue.REGISTRIES['partition']),
    ('models', models.MODELS),
    ('encoders', models.ENCODERS),
    ('aggregators', catalogue.REGISTRIES['aggregator']),
  ):
    found[title.replace(' ', '_')] = {
      name: choice.description for name, choice in choices.items()
    }
    print(f'{title}:')
    for name, choice in choices.items():
      print(f'  {name:16} {choice.description}')


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
