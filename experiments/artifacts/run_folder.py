"""The folder of one run: its lock, flags, versions and summary.

Each file is written under a temporary name, flushed to the disk and renamed. So
a reader finds a whole file or none, even after a crash.
"""

import contextlib
import csv
import errno
import fcntl
import importlib.metadata
import io
import json
import math
import os
import pathlib
import platform
import shutil
import stat
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from experiments.artifacts import code_version, folders
from tff_ssl.common import whole_files

TEMPORARY_PREFIX = whole_files.TEMPORARY_PREFIX
# Names in a run's folder: the flag file, the examples of each client and class,
# the pseudo-labels of each class, and three folders.
FLAGS = 'flags.txt'
PARTITION = 'partition.csv'
PSEUDO_LABELS = 'pseudo_labels.csv'
CHECKPOINTS = 'checkpoints'
CLASSIFIER = 'classifier'
CLIENT_STATES = 'client_states'
_LOCK = '.lock'
# How a digest begins where settings are compared.
SHA256 = 'sha256:'
# What a run's folder may hold before its first round. The lock is removed last,
# so that no other run enters before everything else is gone.
_MADE_BEFORE_TRAINING = (CHECKPOINTS, CLIENT_STATES, _LOCK)
# How many foreign files an error names.
_NAMED = 3
# Attempts to lock a folder that another run may remove meanwhile.
_ATTEMPTS = 10
_PACKAGES = (
  'numpy',
  'tensorflow',
  'tensorflow-datasets',
  'tensorflow-federated',
)


def client_states(run_dir: str | os.PathLike) -> str:
  """Returns the absolute path of the folder of a run's client states.

  Args:
    run_dir: The run's folder.
  """
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

  Args:
    stored: The earlier settings by name.
    now: The present settings by name.
    free: Names of those that may differ.

  Raises:
    FingerprintMismatch: If another one differs. Its text is a table of name,
      stored value and present value.
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
    rows = [('name', 'stored', 'now'), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    table = '\n'.join(
      '  '.join(
        cell.ljust(width) for cell, width in zip(row, widths, strict=True)
      ).rstrip()
      for row in rows
    )
    raise FingerprintMismatch(
      'This run was started with other settings or data; restore them or '
      f'choose another run folder:\n{table}'
    )


def sync_folder(folder: pathlib.Path) -> None:
  """Syncs a folder to the disk: without that, a crash may undo a rename.

  Args:
    folder: The folder.
  """
  descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def write_fully(descriptor: int, content: bytes) -> None:
  """Writes bytes and waits until they are on the disk.

  Args:
    descriptor: Of an open file.
    content: The bytes.
  """
  rest = memoryview(content)
  while rest:
    rest = rest[os.write(descriptor, rest) :]
  os.fsync(descriptor)


def write_durably(path: pathlib.Path, content: bytes) -> None:
  """Replaces a file; after a crash it is either the old or the new one.

  Args:
    path: The file; its folder exists.
    content: The new content.

  Raises:
    OSError: If any step fails; the old file is then unchanged.
  """
  temporary = path.with_name(f'{TEMPORARY_PREFIX}{path.name}')
  flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
  descriptor = os.open(temporary, flags, 0o644)
  try:
    write_fully(descriptor, content)
  finally:
    os.close(descriptor)
  os.replace(temporary, path)
  sync_folder(path.parent)


def sweep_temporaries(folder: pathlib.Path) -> None:
  """Removes the temporary files of interrupted writes.

  Args:
    folder: The folder to clean.
  """
  for path in folder.glob(f'{TEMPORARY_PREFIX}*'):
    remove(path)


def remove(path: pathlib.Path) -> None:
  """Removes a file, a link (not its target), or a folder with its content.

  Args:
    path: What to remove.
  """
  if path.is_dir() and not path.is_symlink():
    shutil.rmtree(path)
  else:
    path.unlink()


def to_strict_json(value: Any) -> Any:
  """Returns `value` with Python's numbers, and `None` for non-finite ones.

  Args:
    value: Nested mappings, lists and tuples of strings, numbers and None.

  Returns:
    The same structure, made of what JSON can hold.
  """
  if isinstance(value, Mapping):
    return {str(key): to_strict_json(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    return [to_strict_json(item) for item in value]
  if hasattr(value, 'dtype'):
    array = np.asarray(value)
    # bfloat16 is not a type of numpy itself: `tolist` would not give floats.
    wide = array.astype(np.float32) if array.dtype.kind == 'V' else array
    return to_strict_json(wide.tolist())
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value


def _flag_text(name: str, value: Any) -> str:
  if isinstance(value, bool):
    text = str(value).lower()
  elif isinstance(value, (list, tuple)):
    # absl's list flags read one line of CSV.
    line = io.StringIO()
    csv.writer(line, lineterminator='').writerow(value)
    text = line.getvalue()
  else:
    text = str(value)
  if text != text.strip() or '\n' in text or '\r' in text:
    raise ValueError(
      f'--{name}={text!r} cannot be kept in a flag file: remove its line '
      'breaks and outer spaces.'
    )
  return text


def _check_is_ours(path: pathlib.Path, names: Collection[str]) -> None:
  """Refuses a folder that holds files but is not the folder of a run.

  The folder of a run has a lock file with a process number, a flag file or a
  checkpoint. Users may add files of their own to such a folder.

  Args:
    path: The folder.
    names: The names of the files in it.

  Raises:
    ValueError: If it is neither empty nor the folder of a run.
  """
  others = sorted(
    name
    for name in names
    if name != _LOCK and not name.startswith(TEMPORARY_PREFIX)
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


def _not_created(path: pathlib.Path, reason: str) -> ValueError:
  return ValueError(
    f'run_dir={path} cannot be created: {reason}; choose another folder.'
  )


def _names_in(path: pathlib.Path) -> frozenset[str]:
  """Returns the names in a folder that can be the folder of a run."""
  try:
    status = path.stat()
  except OSError as error:
    raise _not_created(path, error.strerror) from error
  if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
    raise ValueError(
      f'run_dir={path} belongs to or can be written by other users '
      f'(owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}): '
      'choose a folder of your own, or chmod o-w it.'
    )
  try:
    names = frozenset(os.listdir(path))
  except OSError as error:
    raise ValueError(
      f'run_dir={path} cannot be read: {error.strerror}; choose another folder.'
    ) from error
  _check_is_ours(path, names)
  return names


def _locked_by_another(path: pathlib.Path, holder: str) -> RunFolderError:
  return RunFolderError(
    f'run_dir={path} is used by another run (pid {holder or "unknown"}): wait '
    'for its end or choose another folder.'
  )


def _read_flags(file: pathlib.Path) -> dict[str, str] | None:
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


def _check_flags(
  file: pathlib.Path, flags: Mapping[str, Any], free: Collection[str]
) -> None:
  """Compares flags with a flag file, if there is one."""
  stored = _read_flags(file)
  if stored is not None:
    now = {
      name: _flag_text(name, value)
      for name, value in flags.items()
      if value is not None
    }
    check_fingerprint(stored, now, free)


def inspect(
  path: str | os.PathLike,
  flags: Mapping[str, Any],
  free: Collection[str] = (),
) -> None:
  """Checks the folder of a run without changing it.

  Args:
    path: The folder; it need not exist.
    flags: As in `RunFolder.check_flags`.
    free: Likewise.

  Raises:
    ValueError: If it cannot be the folder of a run with these flags.
    RunFolderError: If another run holds it.
  """
  path = pathlib.Path(path).absolute()
  if not path.is_dir():
    nearest = next(p for p in (path, *path.parents) if p.exists())
    if not nearest.is_dir():
      raise _not_created(path, os.strerror(errno.EEXIST))
    if not os.access(nearest, os.W_OK | os.X_OK):
      raise _not_created(path, os.strerror(errno.EACCES))
    return
  _names_in(path)
  with contextlib.suppress(FileNotFoundError), (path / _LOCK).open() as lock:
    try:
      # A shared lock, given back at once: others may inspect at the same time.
      fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      raise _locked_by_another(path, lock.read(20)) from None
  _check_flags(path / FLAGS, flags, free)


class RunFolder:
  """An exclusively locked folder of one run.

  Use it as a context manager, or call `close`. The end of the process unlocks
  it as well. If a `with` block ends with an error before `keep` was called, it
  also removes what this run has made: a refused run leaves nothing behind.
  """

  def __init__(self, path: str | os.PathLike):
    """Creates the folder if needed and locks it.

    Args:
      path: The folder: a new one, an empty one or that of an earlier run. It
        must belong to this user, and no other user may write to it, since a run
        resumes from the files in it.

    Raises:
      ValueError: If it cannot be a run folder, or holds foreign files.
      RunFolderError: If another run holds it.
    """
    self.path = pathlib.Path(path).absolute()
    self._is_kept = False
    self._made = []
    try:
      self._lock = self._open()
    except BaseException:
      folders.remove_empty(self._made)
      raise
    try:
      os.ftruncate(self._lock, 0)
      os.pwrite(self._lock, str(os.getpid()).encode(), 0)
      sweep_temporaries(self.path)
    except OSError as error:
      self._end()
      raise RunFolderError(
        f'run_dir={self.path} cannot be written: {error.strerror}; free some '
        'space or choose another folder.'
      ) from error

  def _open(self) -> int:
    """Makes, checks and locks the folder; returns the locked descriptor."""
    for _ in range(_ATTEMPTS):
      self._make()
      lock = self.path / _LOCK
      try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
      except FileNotFoundError:
        continue
      except OSError as error:
        raise ValueError(
          f'run_dir={self.path} is not writable: {error.strerror}; choose '
          'another folder.'
        ) from error
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

  def _make(self) -> None:
    """Makes the folder and checks that it can be that of a run."""
    try:
      self._made += folders.make(self.path)
    except OSError as error:
      raise _not_created(self.path, error.strerror) from error
    self._before = _names_in(self.path)

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
        remove(path)
    folders.remove_empty(self._made)

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

  @property
  def checkpoints(self) -> pathlib.Path:
    """Folder of the checkpoints."""
    return self.path / CHECKPOINTS

  @property
  def metrics(self) -> pathlib.Path:
    """CSV of the metrics, one row for each round."""
    return self.path / 'metrics.csv'

  @property
  def clients(self) -> pathlib.Path:
    """CSV of the evaluations per client, a row for each round and client."""
    return self.path / 'clients.csv'

  @property
  def pseudo_labels(self) -> pathlib.Path:
    """CSV of pseudo-labels by class, a row for each round and class."""
    return self.path / PSEUDO_LABELS

  @property
  def participation(self) -> pathlib.Path:
    """CSV of who took part, a row for each client."""
    return self.path / 'participation.csv'

  @property
  def tensorboard(self) -> pathlib.Path:
    """Folder of TensorBoard's event files."""
    return self.path / 'tensorboard'

  @property
  def flags(self) -> pathlib.Path:
    """Flag file of the run; `--flagfile` runs it again."""
    return self.path / FLAGS

  @property
  def versions(self) -> pathlib.Path:
    """JSON of the versions that the run was last started with."""
    return self.path / 'versions.json'

  @property
  def summary(self) -> pathlib.Path:
    """JSON of the results."""
    return self.path / 'summary.json'

  def _write(self, path: pathlib.Path, text: str) -> None:
    try:
      write_durably(path, text.encode())
    except OSError as error:
      raise RunFolderError(
        f'{path} cannot be written: {error.strerror}; free '
        f'{len(text)} bytes or restore write access, and start again.'
      ) from error

  def write_flags(self, flags: Mapping[str, Any]) -> None:
    """Writes the flag file, sorted by name.

    Args:
      flags: Values by name; those that are None are left out.

    Raises:
      ValueError: If a value cannot be written in one line.
      RunFolderError: If the file cannot be written.
    """
    lines = [
      f'--{name}={_flag_text(name, value)}\n'
      for name, value in sorted(flags.items())
      if value is not None
    ]
    self._write(self.flags, ''.join(lines))

  def read_flags(self) -> dict[str, str] | None:
    """Reads the flag file.

    Returns:
      The values as text by name, None if there is no file.

    Raises:
      ValueError: If a line of the file is no flag.
    """
    return _read_flags(self.flags)

  def check_flags(
    self, flags: Mapping[str, Any], free: Collection[str] = ()
  ) -> None:
    """Compares `flags` with the flag file, if there is one.

    Args:
      flags: Values by name, as `write_flags` takes them.
      free: Names that may differ, such as the number of rounds or folders.

    Raises:
      FingerprintMismatch: If another differs.
    """
    _check_flags(self.flags, flags, free)

  def write_versions(self, first_round: int = 0) -> str | None:
    """Writes the versions of Python, the platform, packages and this code.

    `code` in the file gets an entry for each start whose code differs from that
    of the start before, with the number of rounds done at that time.

    Args:
      first_round: Rounds done before this start.

    Returns:
      A note for the user where earlier rounds were computed by other code.
    """
    try:
      earlier = json.loads(self.versions.read_text())['code']
      last = {k: v for k, v in earlier[-1].items() if k != 'from_round'}
    except (OSError, ValueError, KeyError, IndexError, TypeError):
      earlier, last = [], None
    now = code_version.describe()
    if last != now:
      earlier = [*earlier, {'from_round': first_round, **now}]
    versions = {'python': platform.python_version()}
    versions['platform'] = platform.platform()
    for package in _PACKAGES:
      try:
        versions[package] = importlib.metadata.version(package)
      except importlib.metadata.PackageNotFoundError:
        versions[package] = None
    versions.update(now, code=earlier)
    self._write(self.versions, json.dumps(versions, indent=2) + '\n')
    if last in (None, now):
      return None
    return (
      f'Note: the first {first_round} rounds were computed by other code '
      f'(commit {last.get("commit")}, now {now["commit"]}), which may give '
      'other results; versions.json lists both.'
    )

  def write_summary(self, summary: Mapping[str, Any]) -> None:
    """Writes the results as strict JSON; non-finite numbers become null.

    Args:
      summary: Nested results: strings, numbers, numpy values, lists, mappings.

    Raises:
      RunFolderError: If the file cannot be written.
    """
    text = json.dumps(to_strict_json(summary), indent=2, allow_nan=False)
    self._write(self.summary, text + '\n')

  def require_free_space(self, needed_bytes: int) -> None:
    """Checks, before a run spends hours, that its files will fit.

    Args:
      needed_bytes: Bytes that the run will write.

    Raises:
      RunFolderError: If the disk has less.
    """
    free = shutil.disk_usage(self.path).free
    if free < needed_bytes:
      raise RunFolderError(
        f'run_dir={self.path} needs {needed_bytes} bytes and its disk has '
        f'{free} free: free some or choose another folder.'
      )
