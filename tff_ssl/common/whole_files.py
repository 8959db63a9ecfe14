"""Writes files atomically: a reader finds the whole file or none."""

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

# The start of a file's name while it is written. The owner of a folder may
# remove leftovers with this prefix after a program was killed.
TEMPORARY_PREFIX = '.temporary-'


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
  """Opens a new file that replaces `path` at the end of the `with` block.

  If the block raises an error, the new file is removed and an old file at
  `path` stays as it was. It is on the disk before it has its name.
  """
  folder, name = os.path.split(os.fspath(path))
  # The process id keeps apart two processes that write the same cache file.
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
