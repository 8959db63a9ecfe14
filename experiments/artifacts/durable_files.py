"""Files and folders that a crash leaves whole: written, appended to, sealed.

A file or folder has a temporary name until it is on the disk. The folder that
it lies in is synced, too: otherwise a crash may undo the rename.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from tff_ssl.common import whole_files

TEMPORARY_PREFIX = whole_files.TEMPORARY_PREFIX
_SEAL = 'sha256'


def write(path: pathlib.Path, content: bytes) -> None:
  """Replaces a file; after a crash it is either the old or the new one."""
  with whole_files.replacing(path) as file:
    _write_all(file.fileno(), content)
  sync_folder(path.parent)


def append(descriptor: int, content: bytes) -> None:
  """Adds bytes to a file and syncs it; after an error, it is unchanged."""
  size = os.fstat(descriptor).st_size
  try:
    _write_all(descriptor, content)
    os.fsync(descriptor)
  except OSError:
    # A caller may catch the error and append again: no part of the bytes may
    # stay. If this fails as well, whoever reads the file drops that part.
    with contextlib.suppress(OSError):
      os.ftruncate(descriptor, size)
    raise


def _write_all(descriptor: int, content: bytes) -> None:
  rest = memoryview(content)
  while rest:
    rest = rest[os.write(descriptor, rest) :]


def write_folder(path: pathlib.Path, contents: Mapping[str, bytes]) -> None:
  """Writes a new folder with its files; after a crash it is whole or absent."""
  temporary = path.with_name(f'{TEMPORARY_PREFIX}{path.name}')
  if temporary.exists():  # An earlier attempt failed.
    shutil.rmtree(temporary)
  temporary.mkdir()
  for name, content in contents.items():
    with open(temporary / name, 'xb') as file:
      _write_all(file.fileno(), content)
      os.fsync(file.fileno())
  sync_folder(temporary)
  temporary.rename(path)
  sync_folder(path.parent)


def sync_folder(folder: pathlib.Path) -> None:
  """Waits until the names in a folder are on the disk."""
  descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def remove(path: pathlib.Path) -> None:
  """Removes a file, a link (not its target), or a folder with its content."""
  if path.is_dir() and not path.is_symlink():
    shutil.rmtree(path)
  else:
    path.unlink()


def remove_folder(path: pathlib.Path) -> None:
  """Removes what `write_folder` wrote; nobody sees it half removed."""
  doomed = path.with_name(f'{TEMPORARY_PREFIX}{path.name}')
  path.rename(doomed)
  remove(doomed)


def sweep(folder: pathlib.Path) -> None:
  """Removes the temporary files and folders of a program that was killed."""
  for path in folder.glob(f'{TEMPORARY_PREFIX}*'):
    remove(path)


def sha256(content: bytes) -> str:
  """Returns the SHA-256 of bytes in hexadecimal."""
  return hashlib.sha256(content).hexdigest()


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns JSON values with the SHA-256 of their text."""
  return {**values, _SEAL: _digest(values)}


def unseal(content: bytes) -> dict[str, Any] | None:
  """Returns the values that `seal` made; `None` where they have been changed.

  What is no sealed JSON at all is a `ValueError`.
  """
  try:
    values = json.loads(content)
    stored = values.pop(_SEAL)
    is_sound = _digest(values) == stored
  except (
    *(ValueError, AttributeError, KeyError, TypeError),  # No table, no seal.
    RecursionError,  # Lists in lists, a thousand deep.
  ) as error:
    raise ValueError(type(error).__name__) from error
  return values if is_sound else None


def _digest(values: Mapping[str, Any]) -> str:
  return sha256(json.dumps(values, sort_keys=True).encode())
