"""Files that appear under their names complete, or not at all.

A program that is killed while it writes must not leave half a file behind that
the next one reads.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

# The name of a file while it is written. Whoever owns the folder may remove
# what bears it: the program that wrote it is gone.
TEMPORARY_PREFIX = '.temporary-'


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a new file that takes the place of `path` when the body is done.

  Args:
    path: The file to write. Its folder exists.

  Yields:
    The new file, open for writing in binary mode.

  Raises:
    OSError: If the file cannot be written. The old file then stays as it was,
      and so it does where the body raises; the new one is removed.
  """
  folder, name = os.path.split(os.fspath(path))
  # The process is part of the name, for two may write the same file of a cache.
  temporary = os.path.join(folder, f'{TEMPORARY_PREFIX}{os.getpid()}-{name}')
  try:
    with open(temporary, 'wb') as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  except BaseException:
    with contextlib.suppress(FileNotFoundError):
      os.unlink(temporary)
    raise
