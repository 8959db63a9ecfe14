"""The classifier of a run: `python -m experiments.export --help`.

A program that knows nothing of this project loads it,

```
classify = tf.saved_model.load(folder)
logits = classify(images)      # as the data set holds them, such as uint8
```

for the run's standardisation is in it. Servers of SavedModels call its
signature `serving_default`, from `images` to `logits` and `probabilities`.
"""

import argparse
import os
import pathlib
import shutil
import sys
from collections.abc import Sequence

# Exit code of input that cannot be used.
_USAGE = 2


def export(run_dir: pathlib.Path, output: pathlib.Path) -> int:
  """Writes the classifier of a run's newest checkpoint.

  Args:
    run_dir: Folder of a run, which may go on later.
    output: The folder to write; there must be nothing.

  Returns:
    The number of rounds that the classifier has had.

  Raises:
    ValueError: If the folder holds no run with a checkpoint, or `output`
      exists.
    RuntimeError: If the run is going on.
  """
  if output.exists():
    raise ValueError(f'--output={output} exists: name another folder.')
  if not run_dir.is_dir():
    raise ValueError(f'{run_dir} is no folder: name that of a run.')
  from experiments import run_folder, saved_run

  with run_folder.RunFolder(run_dir) as folder:
    run = saved_run.load(folder)
  parent = output.parent
  parent.mkdir(parents=True, exist_ok=True)
  # Renamed at last: a reader finds a whole model or none.
  temporary = parent / f'{run_folder.TEMPORARY_PREFIX}{output.name}'
  if temporary.exists():
    shutil.rmtree(temporary)
  saved_run.write_model(run, temporary)
  temporary.rename(output)
  return run.rounds


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line and returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m experiments.export',
    description="Writes a run's classifier as a SavedModel, from its newest "
    'checkpoint; the data set must lie where the run found it.',
  )
  parser.add_argument('run_dir', type=pathlib.Path, help='folder of the run')
  parser.add_argument(
    '--output',
    type=pathlib.Path,
    help='folder to write (RUN_DIR/classifier)',
  )
  arguments = parser.parse_args(argv)
  output = arguments.output or arguments.run_dir / 'classifier'
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  try:
    rounds = export(arguments.run_dir, output)
  except (ValueError, TypeError, OSError, RuntimeError) as error:
    print(f'error: {error}', file=sys.stderr)
    return _USAGE
  print(f'The classifier after {rounds} rounds is in {output}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
