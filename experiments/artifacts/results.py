"""What a finished run says of itself: summary.json, and what belongs to it.

The summary holds the SHA-256 of itself and of the files beside it that people
and commands read results from. So a file that was cut off, edited or mixed up
is told by whoever reads the results, and no command has to expect anything in
it that a run does not write.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.artifacts import durable_files, run_folder
from experiments.config import command_line
from experiments.config.command_line import UsageError

_SEALED = (
  *(run_folder.METRICS, run_folder.CLIENTS, run_folder.CONFUSION),
  *(run_folder.PARTICIPATION, run_folder.PARTITION, run_folder.PSEUDO_LABELS),
  *('label_mismatch.csv', 'split.json', 'split.npz', run_folder.VERSIONS),
)
_FILES = 'files'
# Evaluations at the end of a run whose mean stands for it: it varies less by
# chance than the last one.
LAST_EVALUATIONS = 5
_REMEDY = 'restore it from a copy, or run the run once more in another folder'


def write(folder: run_folder.RunFolder, summary: Mapping[str, Any]) -> None:
  """Writes the summary of a run whose other files are all written.

  It is strict JSON: numbers that are not finite become null.
  """
  text = json.dumps(sealed(summary, folder.path), indent=2, allow_nan=False)
  folder.write(run_folder.SUMMARY, text + '\n')


def sealed(summary: Mapping[str, Any], folder: pathlib.Path) -> dict[str, Any]:
  """Returns a summary with the SHA-256 of itself and of the files beside it."""
  values = command_line.strict_json(summary)
  values[_FILES] = {
    name: durable_files.sha256((folder / name).read_bytes())
    for name in _SEALED
    if (folder / name).is_file()
  }
  return durable_files.seal(values)


def read(folder: str | os.PathLike) -> dict[str, Any] | None:
  """Returns the summary of a run folder, or `None` if there is none yet.

  If it, or a file that belongs to it, is not as the run left it, that is told.
  """
  path = pathlib.Path(folder) / run_folder.SUMMARY
  if not path.is_file():
    return None
  content = _content(path)
  try:
    values = durable_files.unseal(content)
    # Whoever writes another summary can seal that, too.
    if values is not None and not {*values[_FILES]} <= {*_SEALED}:
      raise ValueError(f'{_FILES} that no run seals')
  except (ValueError, KeyError, TypeError) as error:
    raise UsageError(
      f'{path} is no summary of a run ({error}): {_REMEDY}.'
    ) from error
  if values is None:
    raise UsageError(f'{path} does not match its SHA-256: {_REMEDY}.')
  for name, digest in values[_FILES].items():
    beside = path.with_name(name)
    if durable_files.sha256(_content(beside)) != digest:
      raise UsageError(
        f'{beside} is not as it was when {path.name} was written: {_REMEDY}.'
      )
  return values


def of_folder(folder: str | os.PathLike) -> dict[str, Any]:
  """Returns what `--json` says of a finished run: its folder and summary."""
  return {'run_dir': os.fspath(folder), **read(folder)}


def idle_rounds(flags: Mapping[str, Any]) -> int:
  """Returns the first rounds of a run in which no client trains.

  Of a run whose clients never train, these are none: it is what it is.
  """
  warmup = flags.get('server_warmup_rounds') or 0
  if not flags.get('clients_per_round') or warmup >= flags['total_rounds']:
    return 0
  return warmup


def last_evaluations(
  accuracies: Mapping[int, float], number: int, idle_rounds: int
) -> list[float]:
  """Returns the last of the accuracies by round, 0 for the first.

  Those of idle rounds are left out, unless there are no others.
  """
  trained = [x for n, x in accuracies.items() if n >= idle_rounds]
  return (trained or list(accuracies.values()))[-number:]


def in_words(evaluations: int) -> str:
  """Returns what the figure of a run is called, by how many it is a mean of."""
  if evaluations == 1:
    return 'last evaluation'
  return f'mean of the last {evaluations} evaluations'


def _content(path: pathlib.Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError as error:
    raise UsageError(
      f'{path} cannot be read: {error.strerror}; {_REMEDY}.'
    ) from error
