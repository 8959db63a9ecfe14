"""The folder of one run: its lock, its files, and the flags it began with."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import stat
from collections.abc import Collection, Mapping
from typing import Any

from experiments.artifacts import durable_files

# What a run's folder holds: tables with rows for rounds, classes and clients,
METRICS = 'metrics.csv'
CLIENTS = 'clients.csv'
PSEUDO_LABELS = 'pseudo_labels.csv'
PARTICIPATION = 'participation.csv'
PARTITION = 'partition.csv'
CONFUSION = 'confusion.csv'
# other files,
FLAGS = 'flags.txt'
SUMMARY = 'summary.json'
VERSIONS = 'versions.json'
_LOCK = '.lock'
# and folders.
CHECKPOINTS = 'checkpoints'
CLASSIFIER = 'classifier'
CLIENT_STATES = 'client_states'
TENSORBOARD = 'tensorboard'
# How a digest begins where settings are compared.
SHA256 = 'sha256:'
# What there may be before the first round. The lock is removed last, so that no
# other run enters before everything else is gone.
_MADE_BEFORE_TRAINING = (CHECKPOINTS, CLIENT_STATES, _LOCK)
# How many foreign files an error names.
_NAMED = 3
# Attempts to lock a folder that another run may remove meanwhile.
_ATTEMPTS = 10


def client_states(run_dir: str | os.PathLike) -> str:
  """Returns the absolute path of the folder of a run's client states."""
  return os.path.join(os.path.abspath(run_dir), CLIENT_STATES)


class RunFolderError(RuntimeError):
  """The run folder cannot be used now: busy, full or not writable."""


class FingerprintMismatch(ValueError):
  """A run would be resumed with other settings than it was started with."""


def check_fingerprint(
  stored: Mapping[str, Any],
  now: Mapping[str, Any],
  free: Collection[str] = (),
) -> None:
  """Compares the settings of an earlier start with the present ones.

  Those that differ, but for the free ones, are a table in the error.
  """
  absent = '(absent)'
  rows = []
  for name in sorted({*stored, *now} - set(free)):
    before, after = (str(values.get(name, absent)) for values in (stored, now))
    if before == after:
      continue
    if before.startswith(SHA256) and after.startswith(SHA256):
      # Of data: which they are is nothing to read.
      before, after = 'as it was', 'changed'
    rows.append((name, before, after))
  if rows:
    import tabulate  # It takes a while, which no other start needs.

    table = tabulate.tabulate(
      rows, ('name', 'stored', 'now'), 'plain', disable_numparse=True
    )
    raise FingerprintMismatch(
      'This run was started with other settings or data; restore them or '
      f'name another folder (--run_dir):\n{table}'
    )


def _flag_texts(flags: Mapping[str, Any]) -> dict[str, str]:
  """Returns the values in a flag file, which has none for what is None."""
  texts = {}
  for name, value in sorted(flags.items()):
    if value is None:
      continue
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text != text.strip() or '\n' in text or '\r' in text:
      raise ValueError(
        f'--{name}={text!r} cannot be kept in a flag file: remove its line '
        'breaks and outer spaces.'
      )
    texts[name] = text
  return texts


def _check_is_ours(path: pathlib.Path, names: Collection[str]) -> None:
  """Refuses a folder that holds files but is not the folder of a run.

  The folder of a run has a lock file with a process number, a flag file or a
  checkpoint. Users may add files of their own to such a folder.
  """
  others = sorted(
    name
    for name in names
    if name != _LOCK and not name.startswith(durable_files.TEMPORARY_PREFIX)
  )
  if (
    not others
    or _first_bytes(path / _LOCK).isdigit()
    or _first_bytes(path / FLAGS).startswith(b'--')
    or any(path.glob(f'{CHECKPOINTS}/round_*'))
  ):
    return
  found = ', '.join(others[:_NAMED])
  if len(others) > _NAMED:
    found += f' and {len(others) - _NAMED} more'
  raise ValueError(
    f'run_dir={path} holds files that are not of a run ({found}): choose a new '
    'or an empty folder.'
  )


def _first_bytes(path: pathlib.Path) -> bytes:
  """Returns the first bytes of a file; none where there is no file."""
  try:
    with path.open('rb') as file:
      return file.read(20)
  except OSError:
    return b''


def _unusable(path: pathlib.Path, why: str) -> ValueError:
  return ValueError(f'run_dir={path} {why}; choose another folder.')


def _names_in(path: pathlib.Path) -> frozenset[str]:
  """Returns the names in a folder that can be the folder of a run."""
  try:
    status = path.stat()
  except OSError as error:
    raise _unusable(path, f'cannot be created: {error.strerror}') from error
  if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
    raise ValueError(
      f'run_dir={path} belongs to or can be written by other users '
      f'(owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}): '
      'choose a folder of your own, or chmod o-w it.'
    )
  try:
    names = frozenset(os.listdir(path))
  except OSError as error:
    raise _unusable(path, f'cannot be read: {error.strerror}') from error
  _check_is_ours(path, names)
  return names


def _locked_by_another(path: pathlib.Path, holder: str) -> RunFolderError:
  return RunFolderError(
    f'run_dir={path} is used by another run (pid {holder or "unknown"}): wait '
    'for its end or choose another folder.'
  )


def read_flags(file: pathlib.Path) -> dict[str, str] | None:
  """Returns the texts of a flag file's values by name; `None` without one."""
  if not file.exists():
    return None
  flags = {}
  text = file.read_text(encoding='utf-8')
  for line in text.removesuffix('\n').split('\n'):
    name, equals, value = line.partition('=')
    if not name.startswith('--') or not equals:
      raise ValueError(
        f'{file} holds {line!r}, which is not --name=value: repair the line or '
        'choose another run folder.'
      )
    flags[name.removeprefix('--')] = value
  return flags


def check_flags(
  file: pathlib.Path, flags: Mapping[str, Any], free: Collection[str] = ()
) -> None:
  """Compares flags with a flag file, if there is one."""
  stored = read_flags(file)
  if stored is not None:
    check_fingerprint(stored, _flag_texts(flags), free)


def inspect(
  path: str | os.PathLike,
  flags: Mapping[str, Any],
  free: Collection[str] = (),
) -> None:
  """Checks that a run with these flags can have a folder, and leaves it so."""
  path = pathlib.Path(path).absolute()
  if not path.is_dir():
    nearest = next(p for p in (path, *path.parents) if p.exists())
    if not nearest.is_dir():
      raise _unusable(path, 'cannot be created: File exists')
    if not os.access(nearest, os.W_OK | os.X_OK):
      raise _unusable(path, 'cannot be created: Permission denied')
    return
  _names_in(path)
  with contextlib.suppress(FileNotFoundError), (path / _LOCK).open() as lock:
    try:
      # A shared lock, given back at once: others may inspect at the same time.
      fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      raise _locked_by_another(path, lock.read(20)) from None
  check_flags(path / FLAGS, flags, free)


class RunFolder:
  """An exclusively locked folder of one run; the end of its process unlocks it.

  If a `with` block ends with an error before `keep` was called, it also removes
  what this run has made: a refused run leaves nothing behind.
  """

  def __init__(self, path: str | os.PathLike):
    """Creates the folder if needed and locks it.

    It is a new one, an empty one or that of an earlier run. It must belong to
    this user, and no other user may write to it, since a run resumes from it.
    """
    self.path = pathlib.Path(path).absolute()
    self._is_kept = False
    self._made = []
    try:
      self._lock = self._open()
    except BaseException:
      durable_files.remove_empty(self._made)
      raise
    try:
      os.ftruncate(self._lock, 0)
      os.pwrite(self._lock, str(os.getpid()).encode(), 0)
      durable_files.sweep(self.path)
    except OSError as error:
      self._end()
      raise RunFolderError(
        f'run_dir={self.path} cannot be written: {error.strerror}; free some '
        'space or choose another folder.'
      ) from error

  def _open(self) -> int:
    """Makes, checks and locks the folder; returns the locked descriptor."""
    for _ in range(_ATTEMPTS):
      try:
        self._made += durable_files.make_folders(self.path)
      except OSError as error:
        why = f'cannot be created: {error.strerror}'
        raise _unusable(self.path, why) from error
      self._before = _names_in(self.path)
      lock = self.path / _LOCK
      try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
      except FileNotFoundError:
        continue
      except OSError as error:
        why = f'is not writable: {error.strerror}'
        raise _unusable(self.path, why) from error
      try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        holder = os.pread(descriptor, 20, 0).decode()
        os.close(descriptor)
        raise _locked_by_another(self.path, holder) from None
      # A refused run may have removed the file in the meantime. Two runs would
      # then hold locks on two different files of the same name.
      with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), lock.stat()):
          # Listed again: another run may have ended in the meantime.
          made = {_LOCK} - self._before
          self._before = frozenset(os.listdir(self.path)) - made
          return descriptor
      os.close(descriptor)
    raise RunFolderError(
      f'run_dir={self.path} is removed by other programs again and again: '
      'choose another folder.'
    )

  def keep(self) -> None:
    """Keeps what the folder holds from now on, since training begins."""
    self._is_kept = True

  def _discard(self) -> None:
    """Removes what this run has made; it must still hold the lock."""
    left = set(os.listdir(self.path)) - {*self._before, *_MADE_BEFORE_TRAINING}
    for name in _MADE_BEFORE_TRAINING:
      path = self.path / name
      # If other files stay, such as packed data in a cache, the lock stays: by
      # it, the next run recognises the folder as that of a run.
      if name in self._before or (name == _LOCK and left):
        continue
      with contextlib.suppress(FileNotFoundError):
        durable_files.remove(path)
    durable_files.remove_empty(self._made)

  def _end(self) -> None:
    """Removes what a refused run has made, and unlocks the folder.

    Files that cannot be removed stay: the error that refused the run matters
    more.
    """
    with contextlib.suppress(OSError):
      self._discard()
    self.close()

  def close(self) -> None:
    """Unlocks the folder."""
    os.close(self._lock)

  def __enter__(self) -> 'RunFolder':
    return self

  def __exit__(self, error_type, *unused) -> None:
    if error_type is None or self._is_kept:
      self.close()
    else:
      self._end()

  def write(self, name: str, text: str) -> None:
    """Writes a file of the folder as a whole."""
    path = self.path / name
    try:
      durable_files.write(path, text.encode())
    except OSError as error:
      raise RunFolderError(
        f'{path} cannot be written: {error.strerror}; free '
        f'{len(text)} bytes or restore write access, and start again.'
      ) from error

  def write_flags(self, flags: Mapping[str, Any]) -> None:
    """Writes the flag file, which `--flagfile` reads."""
    texts = _flag_texts(flags).items()
    self.write(FLAGS, ''.join(f'--{name}={text}\n' for name, text in texts))

  def require_free_space(self, needed_bytes: int) -> None:
    """Checks, before a run spends hours, that its files will fit."""
    free = shutil.disk_usage(self.path).free
    if free < needed_bytes:
      raise RunFolderError(
        f'run_dir={self.path} needs {needed_bytes} bytes and its disk has '
        f'{free} free: free some or choose another folder.'
      )
