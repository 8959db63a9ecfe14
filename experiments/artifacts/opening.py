"""Opens the folders and files of a run before TensorFlow is imported.

The import takes seconds; a wrong path is told at once.
"""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

from datasets.sources import catalogue
from experiments.artifacts import checkpoints, durable_files, run_folder
from experiments.config import resolving
from experiments.config import settings as settings_lib
from experiments.config.usage import UsageError


@contextlib.contextmanager
def run(settings) -> Iterator[run_folder.RunFolder]:
  """Opens the run folder and checks that the run finds what it needs.

  What is made for a run that is refused is removed again, but for packed data
  in the cache: others may use them already.
  """
  with (
    run_folder.RunFolder(settings.run_dir) as folder,
    cache_folder(settings.cache_dir),
  ):
    # First: with other files there are other defaults.
    check_files(settings)
    flags = folder.path / run_folder.FLAGS
    run_folder.check_flags(flags, settings.used, settings_lib.FREE)
    yield folder


@contextlib.contextmanager
def dry_run(settings) -> Iterator[None]:
  """Checks that a run that is not begun finds what it needs."""
  run_folder.inspect(settings.run_dir, settings.used, settings_lib.FREE)
  check_rounds_left(settings, rounds_done(settings))
  with cache_folder(settings.cache_dir):
    check_files(settings)
    yield


def check_files(settings) -> None:
  """Checks the files of the data; says where their folder comes from."""
  try:
    catalogue.check_files(settings.dataset, data_dir=settings.data_dir)
  except ValueError as error:
    if settings.origins.get('data_dir') != resolving.DATA_DIR:
      raise
    raise UsageError(
      f'{error} (The folder is that of {resolving.DATA_DIR}: is it the one you '
      'mean? Else give --data_dir.)'
    ) from error


def rounds_done(settings) -> int:
  """Returns the round after which a run would be resumed; 0 for a new one."""
  folder = pathlib.Path(settings.run_dir) / run_folder.CHECKPOINTS
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
      made = durable_files.make_folders(pathlib.Path(path).absolute())
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
    durable_files.remove_empty(made)
    raise
