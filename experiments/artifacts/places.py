"""The folders and files of a run, opened before TensorFlow is imported.

That takes seconds; a wrong path is told at once.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

from datasets.sources import catalogue
from experiments.artifacts import checkpoints, folders, run_folder
from experiments.config import defaults
from experiments.config import settings as settings_lib
from experiments.config.usage import UsageError


@contextlib.contextmanager
def opened(settings) -> Iterator[run_folder.RunFolder]:
  """Opens the run folder and checks that the run finds what it needs.

  What is made for a run that is refused is removed again (`RunFolder`), but for
  packed data in the cache: others may use them already.

  Args:
    settings: From `experiments.config.settings.make`.

  Yields:
    The locked run folder. A run with the same settings may be in it.

  Raises:
    ValueError: If a folder cannot be used, data files are missing or cannot be
      downloaded, or the run in the folder has other settings.
    RunFolderError: If another run is going on in the folder.
  """
  with (
    run_folder.RunFolder(settings.run_dir) as folder,
    cache_folder(settings.cache_dir),
  ):
    # First: with other files there are other defaults.
    check_files(settings)
    folder.check_flags(settings.used, settings_lib.FREE)
    yield folder


@contextlib.contextmanager
def read(settings) -> Iterator[None]:
  """Checks that a run that is not begun finds what it needs; see `opened`.

  Args:
    settings: From `experiments.config.settings.make`.

  Yields:
    Nothing.

  Raises:
    ValueError: If a folder cannot be used, data files are missing or cannot be
      downloaded, or the run in the folder has other settings or more rounds.
    RunFolderError: If another run is going on in the folder.
  """
  run_folder.inspect(settings.run_dir, settings.used, settings_lib.FREE)
  check_rounds_left(settings, rounds_done(settings))
  with cache_folder(settings.cache_dir):
    check_files(settings)
    yield


def check_files(settings) -> None:
  """Checks the files of the data; says where their folder comes from.

  Args:
    settings: From `experiments.config.settings.make`.

  Raises:
    ValueError: If files are missing and cannot be downloaded.
  """
  try:
    catalogue.check_files(settings.dataset, data_dir=settings.data_dir)
  except ValueError as error:
    if settings.origins.get('data_dir') != defaults.DATA_DIR:
      raise
    raise UsageError(
      f'{error} (The folder is that of {defaults.DATA_DIR}: is it the one you '
      'mean? Else give --data_dir.)'
    ) from error


def rounds_done(settings) -> int:
  """Returns the round after which a run would be resumed; 0 for a new one.

  Args:
    settings: What has `run_dir`.
  """
  folder = pathlib.Path(settings.run_dir) / run_folder.CHECKPOINTS
  return checkpoints.rounds_done(folder)


def check_rounds_left(settings, first_round: int) -> None:
  """Refuses to end a run before the rounds that it has done.

  Args:
    settings: What has `run_dir` and `total_rounds`.
    first_round: Rounds done.

  Raises:
    UsageError: If they are more than `total_rounds`.
  """
  if first_round > settings.total_rounds:
    raise UsageError(
      f'--total_rounds={settings.total_rounds} is less than the {first_round} '
      f'rounds that the run in {settings.run_dir} has done: raise it, or name '
      'another folder.'
    )


@contextlib.contextmanager
def cache_folder(path: str) -> Iterator[None]:
  """Makes the folder of the cache; if the body fails, an empty one goes again.

  Args:
    path: `--cache_dir`.

  Yields:
    Nothing.

  Raises:
    UsageError: If the folder cannot be made or written.
  """
  made, remedy = [], 'choose another folder'
  try:
    try:
      made = folders.make(pathlib.Path(path).absolute())
    except OSError as error:
      raise UsageError(
        f'--cache_dir={path} cannot be created: {error.strerror}; {remedy}.'
      ) from error
    try:
      # Not by the mode alone: the disk may be read-only.
      tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
      raise UsageError(
        f'--cache_dir={path} cannot be written: {error.strerror}; {remedy}.'
      ) from error
    yield
  except BaseException:
    folders.remove_empty(made)
    raise
