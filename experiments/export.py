"""The classifier of a run: `python -m experiments.export --help`.

A program that knows nothing of this project loads it,

```
classify = tf.saved_model.load(folder)
logits = classify(images)
```

where `images` are `[N, H, W, C]` as the data set holds them (`uint8`, 0 to
255), for the run's standardisation is in it. Servers of SavedModels call its
signature `serving_default`, from `images` to `logits` and `probabilities`.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence

from experiments import command_line

# Exit code of input that cannot be used.
_USAGE = 2


def export(
  run_dir: pathlib.Path,
  output: pathlib.Path,
  *,
  data_dir: str | None = None,
  cache_dir: str | None = None,
) -> int:
  """Writes the classifier of a run's newest checkpoint.

  Args:
    run_dir: Folder of a run, which may be resumed later.
    output: The folder to write; there must be nothing.
    data_dir: Where the run's data lie, if no longer where it found them.
    cache_dir: A folder for packed data, if not the run's.

  Returns:
    The number of rounds that the classifier has had.

  Raises:
    ValueError: If the folder holds no run with a sound checkpoint of a trained
      classifier, the data are not the run's, or `output` exists.
    RuntimeError: If the run is going on, or the model cannot be written.
    OSError: If the folder cannot be written.
  """
  from experiments import run_folder

  if output.exists():
    raise ValueError(f'--output={output} exists: name another folder.')
  if not (run_dir / run_folder.FLAGS).is_file():
    raise ValueError(
      f'{run_dir} holds no run: name a folder that experiments.run wrote.'
    )
  from experiments import saved_run

  moved = {'data_dir': data_dir, 'cache_dir': cache_dir}
  # To the end, for a run that is resumed meanwhile would sweep what is half
  # written.
  with run_folder.RunFolder(run_dir) as folder:
    run = saved_run.load(
      folder, {name: value for name, value in moved.items() if value}
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(
      prefix=run_folder.TEMPORARY_PREFIX, dir=output.parent
    )
    try:
      whole = pathlib.Path(temporary, 'classifier')
      saved_run.write_model(run, whole)
      # At last: a reader finds a whole model or none.
      whole.rename(output)
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
  return run.rounds


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line and returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m experiments.export',
    description="Writes a run's classifier as a SavedModel, from its newest "
    "checkpoint. The run's data must be there.",
  )
  parser.add_argument('run_dir', type=pathlib.Path, help='folder of the run')
  parser.add_argument(
    '--output',
    type=pathlib.Path,
    help='folder to write (RUN_DIR/classifier)',
  )
  parser.add_argument('--data_dir', help='as in experiments.run (the same)')
  parser.add_argument('--cache_dir', help='as in experiments.run (the same)')
  arguments = parser.parse_args(argv)
  run_dir = arguments.run_dir.expanduser()
  output = arguments.output or run_dir / 'classifier'
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  try:
    rounds = export(
      run_dir,
      output.expanduser(),
      data_dir=arguments.data_dir,
      cache_dir=arguments.cache_dir,
    )
  except (ValueError, TypeError, OSError, RuntimeError) as error:
    print(f'error: {error}', file=sys.stderr)
    return _USAGE
  except KeyboardInterrupt:
    return 128 + signal.SIGINT
  print(f'The classifier after {rounds} rounds is in {output}')
  return 0


if __name__ == '__main__':
  command_line.run(main)
