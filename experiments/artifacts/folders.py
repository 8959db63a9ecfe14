"""Folders that a command makes, and removes again if it comes to nothing."""

import contextlib
import pathlib
from collections.abc import Sequence


def make(path: pathlib.Path) -> list[pathlib.Path]:
  """Makes a folder with its parents.

  Args:
    path: The folder.

  Returns:
    Those that were not there before, the outermost first.

  Raises:
    OSError: If one cannot be made. None is left then that this call has made.
  """
  made = []
  for folder in (*reversed(path.parents), path):
    try:
      folder.mkdir()
      made.append(folder)
    except OSError:
      # Where it exists, its parent may be one that cannot be written.
      if not folder.is_dir():
        remove_empty(made)
        raise
  return made


def remove_empty(folders: Sequence[pathlib.Path]) -> None:
  """Removes folders that `make` made, unless something is in them."""
  for folder in reversed(folders):
    # Not empty, or gone.
    with contextlib.suppress(OSError):
      folder.rmdir()
