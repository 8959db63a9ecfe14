"""Exports the classifier of a run: `python -m experiments.export --help`.

Programs without this project load it (docs/how_to/export.md). Only the newest
checkpoint is needed; the data of the run may be gone.
"""

import dataclasses
import pathlib
import shutil
import signal
import sys
import tempfile

from experiments.artifacts import durable_files, run_folder
from experiments.config import command_line, side_commands
from experiments.config.command_line import UsageError
from tff_ssl.common import user_modules
from tff_ssl.common.setting import Setting

COMMAND = side_commands.Command(
  'export',
  "Writes the classifier of a run's newest checkpoint as a SavedModel. It does "
  'not need the data of the run.',
  'runs/grouping_digits_seed0 --output=classifier',
  (
    dataclasses.replace(
      side_commands.OUTPUT,
      help='Folder to write, a new one; by default RUN_DIR/classifier.',
    ),
    Setting(
      'model',
      str,
      'module:NAME of the network of the run, where that is your own: no '
      'module is imported because a folder names it.',
    ),
  ),
  arguments='RUN_DIR',
)


def export(
  run_dir: pathlib.Path,
  output: pathlib.Path,
  model: str | None = None,
) -> int:
  """Writes the classifier of a run's newest checkpoint; returns its rounds.

  A network of the user's own is imported where `model` names it, as
  `module:NAME`, and not because the run's folder does.
  """
  if output.exists():
    raise ValueError(f'--output={output} exists: name another folder.')
  if not (run_dir / run_folder.FLAGS).is_file():
    raise ValueError(
      f'{run_dir} holds no run: name a folder that experiments.run wrote.'
    )
  from experiments.running import classifiers

  # Locked to the end: a resumed run would remove the half-written files.
  with (
    run_folder.RunFolder(run_dir),
    user_modules.only_of(
      {model}, "give --model, too, if the network's code is yours"
    ),
  ):
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(
      prefix=durable_files.TEMPORARY_PREFIX, dir=output.parent
    )
    try:
      whole = pathlib.Path(temporary, run_folder.CLASSIFIER)
      rounds = classifiers.export(run_dir, whole)
      # Renamed last, so that a reader finds a whole model or none.
      whole.rename(output)
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
  return rounds


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  return COMMAND.main(argv, _run)


def _run(values, arguments: list[str]) -> int:
  run_dir = pathlib.Path(arguments[0]).expanduser()
  output = run_dir / run_folder.CLASSIFIER
  if values.output:
    output = pathlib.Path(values.output).expanduser()
  try:
    rounds = export(run_dir, output, values.model)
  except (ValueError, TypeError, OSError, RuntimeError) as error:
    raise UsageError(str(error)) from error
  except KeyboardInterrupt:
    return 128 + signal.SIGINT
  print(f'The classifier after {rounds} rounds is in {output}')
  return 0


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
