"""Classifies a user's files: `python -m experiments.predict --help`.

A row of the table has the probabilities of an example's classes. The model is
one that `experiments.export` wrote; the run and its data may be gone.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import sys
from collections.abc import Sequence

from etils import epy

from experiments.artifacts import csv_files
from experiments.config import command_line, side_commands
from experiments.config.command_line import UsageError
from experiments.preparing import execution_context

# They take seconds to import, which --help does not need.
with epy.lazy_imports():
  import numpy as np
  import pandas as pd

  from datasets.sources import catalogue
  from experiments.artifacts import exported_models
  from tff_ssl.common import whole_files

COMMAND = side_commands.Command(
  'predict',
  'Classifies examples with a model of experiments.export, and writes a table '
  'with a row for each. FILE has the form of the training data: npz (the array '
  'images), npy, png or jpg; of tables or texts, csv or parquet.',
  'runs/first_run new.npz --output=new.csv',
  (
    dataclasses.replace(
      side_commands.OUTPUT,
      help='CSV file to write; by default the table is printed.',
    ),
    side_commands.JSON,
  ),
  arguments='MODEL FILE...',
  kinds=('the folder of an exported model', 'a file of examples'),
)


def predict(
  model: pathlib.Path, files: Sequence[str | os.PathLike]
) -> pd.DataFrame:
  """Classifies the examples of files.

  Args:
    model: The folder that `experiments.export` wrote, or the folder of a run
      with such a folder in its `classifier`.
    files: As `catalogue.decode` takes them.

  Returns:
    A row for each example: its `file`, its `index` there, counted from 0, the
    name of its most probable class in `predicted`, whose probability is the
    `confidence`, what no training example had in `unusual`, and
    `probability_NAME` for each class.

  Raises:
    UsageError: If the model or a file cannot be used.
  """
  execution_context.set_up_tensorflow()
  try:
    loaded = exported_models.load(model)
  except ValueError as error:
    raise UsageError(f'MODEL={model} {error}') from error
  paths = list(map(os.fspath, files))
  tables, unusual = [], []
  for path in paths:
    try:
      examples, said = catalogue.decode(
        path, loaded.input_shape, loaded.preprocessing
      )
    except ValueError as error:
      raise UsageError(f'FILE={error}') from error
    tables.append(loaded.probabilities(examples))
    unusual += said
  probabilities = np.concatenate(tables)
  sizes = [len(table) for table in tables]
  names = np.array(loaded.class_names, dtype=object)
  return pd.DataFrame(
    {
      'file': np.repeat(np.array(paths, dtype=object), sizes),
      'index': np.concatenate([np.arange(size) for size in sizes]),
      'predicted': names[probabilities.argmax(axis=1)],
      'confidence': probabilities.max(axis=1),
      'unusual': unusual,
      **{
        f'probability_{name}': probabilities[:, place]
        for place, name in enumerate(loaded.class_names)
      },
    }
  )


def main(argv: list[str]) -> int:
  """Runs the command line and returns the exit code."""
  return COMMAND.main(argv, _run)


def _run(values, arguments: list[str]) -> int:
  output = None
  if values.output is not None:
    output = pathlib.Path(values.output).expanduser()
    # Another ending may be that of an input.
    if output.suffix != '.csv':
      raise UsageError(
        f'--output={values.output} does not end in .csv: name a CSV file.'
      )
  model, *files = arguments
  for path in files if output is not None and output.exists() else ():
    # A link may give a file two names.
    if os.path.exists(path) and output.samefile(path):
      raise UsageError(
        f'--output={values.output} is the same file as FILE={path}, which '
        'would be lost: name another file.'
      )
  try:
    table = predict(pathlib.Path(model).expanduser(), files)
    if values.json:
      values.found['predictions'] = table.to_dict('records')
    if output is None:
      sys.stdout.write(_as_csv(table))
      return 0
    _write(table, output)
  except KeyboardInterrupt:
    return 128 + signal.SIGINT
  print(f'{len(table):,} predictions are in {output}')
  return 0


def _as_csv(table) -> str:
  return csv_files.text_of_table(table, index=False, float_format='%.6g')


def _write(table, output) -> None:
  try:
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_files.replacing(output) as file:
      file.write(_as_csv(table).encode())
  except OSError as error:
    raise UsageError(
      f'--output={output} cannot be written: {error.strerror}; name another '
      'file.'
    ) from error


if __name__ == '__main__':
  command_line.run(lambda: main(sys.argv))
