"""A folder in which the n-th operation of a process fails or is its last one.

Python's own operations that change files are counted: those of `os`, and of
`open` for writing. What libraries write in C++ does not pass here.
"""

import builtins
import contextlib
import errno
import io
import os
import pathlib
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

# The process is killed at an operation: before it, after it, or when half of
# what it writes is written.
AFTER, HALF = 'kill_after', 'kill_half'
# The power goes after it, and with it all that was not synced; or the content
# of files alone, while their names are on the disk.
POWER = ('power_cut', 'power_cut_of_contents')
KILLS = ('kill_before', AFTER, HALF, *POWER)
# It fails, and all later ones do; and what fails at that one alone.
ERRORS = ('ENOSPC', 'EIO', 'EROFS', 'EIO_once')
# Of these a half can be done.
WRITES = ('write', 'pwrite')
# These work on a full disk.
_REMOVALS = ('unlink', 'remove', 'rmdir', 'ftruncate')
_RENAMES = ('rename', 'replace')
_CREATES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class FaultyDisk:
  """Counts the operations below a folder, one of which has a fault.

  Attributes:
    operations: Of each one its name and its path from the folder.
  """

  def __init__(
    self, folder: str | os.PathLike, point: int = 0, fault: str | None = None
  ):
    """Takes the number of the operation with the fault, from 1."""
    self._folder = os.path.realpath(folder)
    self._point, self._fault = point, fault
    self._unsynced = _Unsynced(self._folder) if fault in POWER else None
    self._is_open = True
    self.operations: list[tuple[str, str]] = []

  def call(
    self,
    name: str,
    path: str,
    operate: Callable[[], Any],
    operate_half: Callable[[], Any] | None = None,
    source: str = '',
  ) -> Any:
    """Operates on a path, with the fault if it is due."""
    if not self._is_below(path) or not self._is_open:
      return operate()
    # Temporary files have the number of the process in their names.
    where = os.path.relpath(path, self._folder).replace(f'-{os.getpid()}-', '-')
    self.operations.append((name, where))
    if self._unsynced is not None:
      with self._passing():
        self._unsynced.note(name, path, source)
    left = self._point - len(self.operations)
    if self._fault is None or left > 0:
      return operate()
    if self._fault in ERRORS:
      return self._fail(name, path, left == 0, operate, operate_half)
    if self._fault == HALF and operate_half is not None:
      operate_half()
    if self._fault in (AFTER, *POWER):
      operate()
    if self._unsynced is not None:
      with self._passing():
        self._unsynced.lose(names=self._fault == POWER[0])
    return os.kill(os.getpid(), signal.SIGKILL)

  def _is_below(self, path):
    return path == self._folder or path.startswith(f'{self._folder}/')

  def _fail(self, name, path, is_first, operate, operate_half):
    kind, _, once = self._fault.partition('_')
    if once and not is_first:
      return operate()
    if kind == 'ENOSPC' and name in _REMOVALS:
      return operate()
    if kind == 'ENOSPC' and is_first and operate_half is not None:
      # As the kernel does: what there is room for, and an error the next time.
      return operate_half()
    number = getattr(errno, kind)
    raise OSError(number, os.strerror(number), path)

  @contextlib.contextmanager
  def _passing(self) -> Iterator[None]:
    self._is_open = False
    try:
      yield
    finally:
      self._is_open = True

  @contextlib.contextmanager
  def hooked(self) -> Iterator['FaultyDisk']:
    """Lets all operations of this process pass here."""
    opening = self._opening(open)
    replaced = [
      (os, 'open', self._opening_descriptor(os.open)),
      (builtins, 'open', opening),
      (io, 'open', opening),
    ]
    for name in (*_RENAMES, 'unlink', 'remove', 'mkdir', 'rmdir'):
      replaced.append((os, name, self._by_path(name, getattr(os, name))))
    for name in (*WRITES, 'fsync', 'ftruncate'):
      replaced.append((os, name, self._by_descriptor(name, getattr(os, name))))
    with contextlib.ExitStack() as stack:
      for owner, name, function in replaced:
        stack.enter_context(mock.patch.object(owner, name, function))
      yield self

  def _by_path(self, name, real):
    def call(path, *args, **kwargs):
      source, target = '', _full(path, kwargs.get('dir_fd'))
      if name in _RENAMES:  # Known by the new name.
        source, target = target, _full(args[0])
      return self.call(
        name, target, lambda: real(path, *args, **kwargs), source=source
      )

    return call

  def _by_descriptor(self, name, real):
    def call(descriptor, *args):
      def half():
        data, *rest = args
        return real(descriptor, data[: len(data) // 2], *rest)

      def operate():
        # What a killed process has written stays in memory, synced or not.
        return None if name == 'fsync' else real(descriptor, *args)

      path = os.readlink(f'/proc/self/fd/{descriptor}')
      return self.call(name, path, operate, half if name in WRITES else None)

    return call

  def _opening_descriptor(self, real):
    def opening(path, flags, *args, **kwargs):
      def operate():
        return real(path, flags, *args, **kwargs)

      if not flags & _CREATES:
        return operate()
      return self.call('open', _full(path, kwargs.get('dir_fd')), operate)

    return opening

  def _opening(self, real):
    disk = self

    class Raw(io.FileIO):
      def write(self, data):
        write = super().write
        half = memoryview(data)[: len(data) // 2]
        return disk.call(
          *('write', _full(self.name), lambda: write(data)),
          lambda: write(half),
        )

    def opening(file, mode='r', *args, **kwargs):
      writes = set(mode) & set('wax+') and not isinstance(file, int)
      if not writes or not disk._is_below(_full(file)):
        return real(file, mode, *args, **kwargs)
      raw = disk.call(
        'open', _full(file), lambda: Raw(file, mode.replace('b', ''))
      )
      kind = io.BufferedRandom if '+' in mode else io.BufferedWriter
      return kind(raw) if 'b' in mode else io.TextIOWrapper(kind(raw))

    return opening


class _Unsynced:
  """What a cut of the power may take back, by the rules of POSIX.

  A file's content is on the disk after its own fsync, a name in a folder after
  that of the folder.
  """

  def __init__(self, folder: str):
    self._folder = folder
    # By file, as the disk has it.
    self._contents: dict[int, bytes] = {}
    # The folder of a name, and what takes the change of the name back.
    self._names: list[tuple[str, Callable[[], None]]] = []

  def note(self, name: str, path: str, source: str) -> None:
    """Notes an operation that is about to happen."""
    parent, is_there = os.path.dirname(path), os.path.lexists(path)
    if name == 'fsync':
      self._contents.pop(os.stat(path).st_ino, None)
      self._names = [each for each in self._names if each[0] != path]
    elif name in ('open', *WRITES, 'ftruncate'):
      if is_there:
        content = pathlib.Path(path).read_bytes()
        self._contents.setdefault(os.stat(path).st_ino, content)
      else:
        self._names.append((parent, lambda: os.unlink(path)))
    elif name == 'mkdir' and not is_there and path != self._folder:
      self._names.append((parent, lambda: shutil.rmtree(path)))
    elif name == 'rmdir':
      self._names.append((parent, lambda: os.mkdir(path)))
    elif name in (*_RENAMES, 'unlink', 'remove'):
      undo = _restoring(path) if is_there else lambda: None
      if is_there:  # Another file may get its number.
        self._contents.pop(os.stat(path).st_ino, None)

      def take_back():
        if source:
          os.rename(path, source)
        undo()

      self._names.append((parent, take_back))

  def lose(self, *, names: bool) -> None:
    """Takes back what was not synced; of names, only if asked."""
    for path in pathlib.Path(self._folder).rglob('*'):
      number = path.lstat().st_ino
      if number in self._contents and path.is_file():
        path.write_bytes(self._contents[number])
    for _, take_back in reversed(self._names * names):
      # A folder that has gone for good has nothing in it.
      with contextlib.suppress(FileNotFoundError):
        take_back()


def _restoring(path: str) -> Callable[[], None]:
  """Returns what brings a file back that will have gone."""
  content = pathlib.Path(path).read_bytes()
  return lambda: pathlib.Path(path).write_bytes(content) and None


def _full(path: str | os.PathLike, folder: int | None = None) -> str:
  parent = '.' if folder is None else f'/proc/self/fd/{folder}'
  full = pathlib.Path(os.path.realpath(parent), os.fspath(path))
  return os.path.join(os.path.realpath(full.parent), full.name)
