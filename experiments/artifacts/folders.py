"""Makes folders so that a refused command can remove them again."""

import contextlib
import pathlib
from collections.abc import Sequence


def make(path: pathlib.Path) -> list[pathlib.Path]:
  """Makes a folder with its parents.

  Args:
    path: The folder.

  Returns:
    The folders that it has made, the outermost first.

  Raises:
    OSError: If one cannot be made. The others are then removed again.
  """
  made = []
  for folder in (*reversed(path.parents), path):
    try:
      folder.mkdir()
      made.append(folder)
    except OSError:
      # An existing folder raises, too, where its parent cannot be written.
      if not folder.is_dir():
        remove_empty(made)
        raise
  return made


def remove_empty(folders: Sequence[pathlib.Path]) -> None:
  """Removes the folders that are empty.

  Args:
    folders: From `make`.
  """
  for folder in reversed(folders):
    # It is not empty, or somebody else removed it.
    with contextlib.suppress(OSError):
      folder.rmdir()
