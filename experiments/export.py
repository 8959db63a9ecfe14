"""The classifier of a run: `python -m experiments.export --help`.

A program that knows nothing of this project loads it,

```
classify = tf.saved_model.load(folder)
logits = classify(images)
```

where `images` are `[N, H, W, C]`, `uint8` from 0 to 255 or floats from 0 to 1:
the run's standardisation is in it, and floats outside of [0, 1] are refused.
`classify.with_probabilities(images)` gives `logits` and `probabilities`. It is
also the signature `serving_default`, which servers of SavedModels call; its
`images` are `float32` from 0 to 1.

The classifier comes from the newest checkpoint, and from nothing else: the data
of the run may be gone.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence

from experiments.config import command_line

# Exit code of input that cannot be used.
_USAGE = 2


def export(
  run_dir: pathlib.Path,
  output: pathlib.Path,
) -> int:
  """Writes the classifier of a run's newest checkpoint.

  Args:
    run_dir: Folder of a run, which may be resumed later.
    output: The folder to write; there must be nothing.

  Returns:
    The number of rounds that the classifier has had.

  Raises:
    ValueError: If the folder holds no run with a checkpoint of a trained
      classifier, or `output` exists.
    RuntimeError: If no checkpoint is sound, the run is going on, or the model
      cannot be written.
    OSError: If the folder cannot be written.
  """
  from experiments.artifacts import run_folder

  if output.exists():
    raise ValueError(f'--output={output} exists: name another folder.')
  if not (run_dir / run_folder.FLAGS).is_file():
    raise ValueError(
      f'{run_dir} holds no run: name a folder that experiments.run wrote.'
    )
  from experiments.running import classifiers

  # To the end, for a run that is resumed meanwhile would sweep what is half
  # written.
  with run_folder.RunFolder(run_dir):
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(
      prefix=run_folder.TEMPORARY_PREFIX, dir=output.parent
    )
    try:
      whole = pathlib.Path(temporary, 'classifier')
      rounds = classifiers.export(run_dir, whole)
      # At last: a reader finds a whole model or none.
      whole.rename(output)
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
  return rounds


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line and returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m experiments.export',
    description="Writes a run's classifier as a SavedModel, from its newest "
    'checkpoint alone.',
  )
  parser.add_argument('run_dir', type=pathlib.Path, help='folder of the run')
  parser.add_argument(
    '--output',
    type=pathlib.Path,
    help='folder to write (RUN_DIR/classifier)',
  )
  arguments = parser.parse_args(argv)
  run_dir = arguments.run_dir.expanduser()
  output = arguments.output or run_dir / 'classifier'
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  try:
    rounds = export(
      run_dir,
      output.expanduser(),
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
