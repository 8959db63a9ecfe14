"""The folder of one run: its lock, its files, and the flags it began with.

It is opened before TensorFlow is imported, which takes seconds: a wrong path is
told at once.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import stat
import tempfile
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from datasets.sources import catalogue
from experiments.artifacts import checkpoints, durable_files
from experiments.config import settings as settings_lib
from experiments.config.command_line import UsageError

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
    checkpoints.check_fingerprint(stored, _flag_texts(flags), free)


def _inspect(path: pathlib.Path) -> None:
  """Checks that a run can have a folder, and leaves it as it is."""
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


def make_folders(path: pathlib.Path) -> list[pathlib.Path]:
  """Makes a folder with its parents; returns those made, the outermost first.

  If one cannot be made, the others are removed again.
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


def remove_empty(made: Sequence[pathlib.Path]) -> None:
  """Removes the folders from `make_folders` that are empty."""
  for folder in reversed(made):
    # It is not empty, or somebody else removed it.
    with contextlib.suppress(OSError):
      folder.rmdir()


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
      remove_empty(self._made)
      raise
    try:
      os.ftruncate(self._lock, 0)
      os.pwrite(self._lock, str(os.getpid()).encode(), 0)
      # By it the folder is that of a run, whatever is lost with the power.
      os.fsync(self._lock)
      for folder in self._made:
        # Somebody may make folders where he may not read.
        with contextlib.suppress(PermissionError):
          durable_files.sync_folder(folder.parent)
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
        self._made += make_folders(self.path)
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
    remove_empty(self._made)

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


@contextlib.contextmanager
def opened(settings) -> Iterator[RunFolder]:
  """Opens the run folder and checks that the run finds what it needs.

  What is made for a run that is refused is removed again, but for packed data
  in the cache: others may use them already.
  """
  with (
    RunFolder(settings.run_dir) as folder,
    cache_folder(settings.cache_dir),
  ):
    # First: with other files there are other defaults.
    check_files(settings)
    check_flags(folder.path / FLAGS, settings.used, settings_lib.FREE)
    yield folder


@contextlib.contextmanager
def inspected(settings) -> Iterator[types.SimpleNamespace]:
  """Checks that a run that is not begun finds what it needs.

  Yields its settings with a scratch folder in the place of the run's: states of
  clients that are tried out must not come to those of the run.
  """
  path = pathlib.Path(settings.run_dir).absolute()
  _inspect(path)
  check_flags(path / FLAGS, settings.used, settings_lib.FREE)
  check_rounds_left(settings, rounds_done(settings))
  with cache_folder(settings.cache_dir), tempfile.TemporaryDirectory() as made:
    check_files(settings)
    yield types.SimpleNamespace(**{**vars(settings), 'run_dir': made})


def check_files(settings) -> None:
  """Checks the files of the data; says where their folder comes from."""
  try:
    catalogue.check_files(settings.dataset, data_dir=settings.data_dir)
  except ValueError as error:
    if settings.origins.get('data_dir') != settings_lib.DATA_DIR:
      raise
    raise UsageError(
      f'{error} (The folder is that of {settings_lib.DATA_DIR}: is it the one '
      'you mean? Else give --data_dir.)'
    ) from error


def rounds_done(settings) -> int:
  """Returns the round after which a run would be resumed; 0 for a new one."""
  folder = pathlib.Path(settings.run_dir) / CHECKPOINTS
  return checkpoints.rounds_done(folder)


def check_rounds_left(settings, first_round: int) -> None:
  """Refuses to end a run before the rounds that it has done."""
  if first_round > settings.total_rounds:
    raise UsageError(
      f'--total_rounds={settings.total_rounds} is less than the {first_round} '
      f'rounds that the run in {settings.run_dir} has done: raise it, or name '
      'another folder.'
    )


@contextlib.contextmanager
def cache_folder(path: str) -> Iterator[None]:
  """Makes the folder of `--cache_dir`; if the body fails, an empty one goes."""
  made, wanted = [], 'created'
  try:
    try:
      made = make_folders(pathlib.Path(path).absolute())
      wanted = 'written'
      # Not by the mode alone: the disk may be read-only.
      tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
      raise UsageError(
        f'--cache_dir={path} cannot be {wanted}: {error.strerror}; choose '
        'another folder.'
      ) from error
    yield
  except BaseException:
    remove_empty(made)
    raise
