"""What a finished run says of itself: summary.json, and what belongs to it.

The summary holds the SHA-256 of itself and of the files beside it that people
and commands read results from. So a file that was cut off, edited or mixed up
is told by whoever reads the results, and no command has to expect anything in
it that a run does not write.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.artifacts import run_folder
from experiments.config.usage import UsageError

FILE = 'summary.json'
_SEALED = (
  *('metrics.csv', 'clients.csv', 'confusion.csv', 'participation.csv'),
  *(run_folder.PARTITION, run_folder.PSEUDO_LABELS, 'label_mismatch.csv'),
  *('split.json', 'split.npz', 'versions.json'),
)
_FILES, _OWN = 'files', 'sha256'
_REMEDY = 'restore it from a copy, or run the run once more in another folder'


def sealed(summary: Mapping[str, Any], folder: pathlib.Path) -> dict[str, Any]:
  """Returns a summary with the SHA-256 of itself and of the files beside it.

  Args:
    summary: As `RunFolder.write_summary` takes it.
    folder: The run folder; all other files are written.

  Raises:
    OSError: If a file cannot be read.
  """
  values = run_folder.to_strict_json(summary)
  values[_FILES] = {
    name: _digest((folder / name).read_bytes())
    for name in _SEALED
    if (folder / name).is_file()
  }
  return {**values, _OWN: _digest(_canonical(values))}


def read(folder: str | os.PathLike) -> dict[str, Any] | None:
  """Returns the summary of a run, or `None` if there is none yet.

  Args:
    folder: The run folder.

  Raises:
    UsageError: If the summary, or a file that belongs to it, is not as the run
      left it.
  """
  path = pathlib.Path(folder) / FILE
  if not path.is_file():
    return None
  try:
    values = json.loads(path.read_bytes())
    is_sound = values.pop(_OWN) == _digest(_canonical(values))
  except (
    *(OSError, ValueError, RecursionError),
    *(AttributeError, KeyError, TypeError),  # Not a table with a SHA-256.
  ) as error:
    raise UsageError(
      f'{path} is no summary of a run ({type(error).__name__}): {_REMEDY}.'
    ) from error
  if not is_sound:
    raise UsageError(f'{path} does not match its SHA-256: {_REMEDY}.')
  for name, digest in values[_FILES].items():
    _check(path.with_name(name), digest)
  return values


def split_of(folder: str | os.PathLike) -> dict[str, Any]:
  """Returns what split.json says of the data, or nothing without a sound one.

  Args:
    folder: The run folder.
  """
  try:
    split = json.loads((pathlib.Path(folder) / 'split.json').read_bytes())
    _ = split['source']['version'], split['partition'], dict(split['arguments'])
  except (OSError, ValueError, TypeError, LookupError, RecursionError):
    return {}
  return split


def _check(path, digest) -> None:
  try:
    found = _digest(path.read_bytes())
  except OSError as error:
    raise UsageError(
      f'{path} cannot be read: {error.strerror}; {_REMEDY}.'
    ) from error
  if found != digest:
    raise UsageError(
      f'{path} is not as it was when {FILE} was written: {_REMEDY}.'
    )


def _canonical(values) -> bytes:
  return json.dumps(values, sort_keys=True, allow_nan=False).encode()


def _digest(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()
