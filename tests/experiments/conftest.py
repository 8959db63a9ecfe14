"""What tests of runs and of exported models share."""

import contextlib
import pathlib
import shutil

import pytest
import run_folders


@pytest.fixture(scope='session')
def cache(tmp_path_factory):
  """The flag of one cache for all runs on embedded data."""
  return f'--cache_dir={tmp_path_factory.mktemp("cache")}'


@pytest.fixture(scope='module', autouse=True)
def _cheap_runs(request):
  """Whole runs share builds, and draw nothing.

  A module that looks at pictures says `HAS_PICTURES = True`.
  """
  if request.path.parent != pathlib.Path(__file__).parent:
    yield
    return
  import built_runs

  with contextlib.ExitStack() as stack:
    stack.enter_context(built_runs.built_once())
    if not getattr(request.module, 'HAS_PICTURES', False):
      stack.enter_context(built_runs.without_pictures())
    yield


@pytest.fixture(scope='session')
def export_of(tmp_path_factory):
  """Exports an untrained classifier of 4 x 5 grey images and three classes.

  It is from a folder with what `experiments.export` reads of a run's.
  """
  from experiments.artifacts import checkpoints, run_folder
  from experiments.running import classifiers
  from tff_ssl import models

  def export(class_names):
    run_dir = tmp_path_factory.mktemp('exported')
    description = classifiers.Description(
      *('dense', 'none', [4, 5, 1], 3, [0.5], [0.25], 0),
      class_names=class_names,
    )
    model = models.build('dense', (4, 5, 1), 3, 'none')
    packed = classifiers.pack(description, model.initial_weights(3))
    checkpoints.CheckpointManager(run_dir / run_folder.CHECKPOINTS, 0, {}).save(
      1, 1, files={classifiers.FILE: packed}
    )
    (run_dir / run_folder.FLAGS).write_text('--process=fedavg\n')
    classifiers.export(run_dir, run_dir / run_folder.CLASSIFIER)
    return run_dir

  return export


@pytest.fixture(scope='session')
def exported(export_of):
  """A run folder with a classifier of the classes a, b and `c,d`."""
  return export_of(['a', 'b', 'c,d'])


@pytest.fixture
def copy_cut_off():
  """Copies a finished run, as if killed before its last checkpoint was whole.

  The run goes on in the copy, beside its folder, from the checkpoint before
  the last; metrics and client states are ahead of it, as after a crash.
  """

  def copy(folder):
    cut = folder.with_name('cut')
    shutil.copytree(folder, cut)
    for name in ('summary.json', 'participation.csv'):
      (cut / name).unlink()
    _, *_, last = sorted((cut / 'checkpoints').glob('round_*'))
    shutil.rmtree(last)
    return cut

  return copy


@pytest.fixture
def train_and_resume(copy_cut_off, tmp_path, tff_context):
  """Trains a run, and again from where it was cut off, to the same end.

  Returns its summary, its folder, and that of the run that was cut off.
  """

  def train(*arguments):
    whole = tmp_path / 'whole'
    summary = run_folders.train(whole, *arguments)
    cut = copy_cut_off(whole)
    resumed = run_folders.train(cut, *arguments)
    assert resumed['weights_sha256'] == summary['weights_sha256']
    run_folders.assert_same_metrics(cut, whole)
    return summary, whole, cut

  return train
