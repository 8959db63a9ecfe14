"""The run folder: one run at a time, and its flags."""

import fcntl
import json
import math
import os
import subprocess

import ml_dtypes
import numpy as np
import pytest
import pythons
from absl import flags as absl_flags

from experiments.artifacts import (
  checkpoints,
  durable_files,
  results,
  run_folder,
)


def start(program, *arguments):
  pipes = dict.fromkeys(('stdin', 'stderr'), subprocess.PIPE)
  return pythons.start('-c', program, *arguments, **pipes)


@pytest.fixture
def folder(tmp_path):
  with run_folder.RunFolder(tmp_path / 'run') as opened:
    yield opened


HOLD = """
import sys
from experiments.artifacts import run_folder
try:
  folder = run_folder.RunFolder(sys.argv[1])
except run_folder.RunFolderError as error:
  print('refused', error, flush=True)
else:
  print('holds', flush=True)
  sys.stdin.read()
"""


def test_r5_one_run_at_a_time(tmp_path):
  runs = [start(HOLD, tmp_path / 'run') for _ in range(4)]
  try:
    lines = [run.stdout.readline() for run in runs]
    [winner] = [
      run for run, line in zip(runs, lines, strict=True) if line == 'holds\n'
    ]
    refused = [line for line in lines if line.startswith('refused')]
    assert len(refused) == 3
    with pytest.raises(run_folder.RunFolderError, match=f'pid {winner.pid}'):
      run_folder.RunFolder(tmp_path / 'run')
    winner.kill()
    winner.wait()
    # A killed run leaves no lock behind.
    with run_folder.RunFolder(tmp_path / 'run') as folder:
      assert folder.path == tmp_path / 'run'
  finally:
    for run in runs:
      run.kill()
      run.communicate()


@pytest.mark.parametrize(
  'mode, of_another, message',
  [(0o777, False, 'other users .*mode 777'), (0o700, True, 'other users')],
)
def test_s3_a_folder_that_others_may_write_to_is_refused(
  mode, of_another, message, tmp_path, monkeypatch
):
  tmp_path.chmod(mode)
  mine = tmp_path.stat().st_uid + of_another
  monkeypatch.setattr(os, 'geteuid', lambda: mine)
  with pytest.raises(ValueError, match=message):
    run_folder.RunFolder(tmp_path)


@pytest.mark.parametrize(
  'files, found',
  [
    (['notes.txt'], '(notes.txt)'),
    (['d', 'b', 'a', 'c'], '(a, b, c and 1 more)'),
    # Names that a run uses, too, but no file that a run has written.
    (['flags.txt', 'checkpoints/model.h5'], '(checkpoints, flags.txt)'),
    (['.lock', 'notes.txt'], '(notes.txt)'),
  ],
)
def test_a_folder_of_other_files_is_refused(files, found, tmp_path, refusal):
  for name in files:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('of somebody')
  before = sorted(tmp_path.rglob('*'))
  where = f'run_dir={tmp_path} holds files that are not'
  with refusal(where, found, 'choose a new or an empty folder'):
    run_folder.RunFolder(tmp_path)
  assert sorted(tmp_path.rglob('*')) == before


def test_the_root_of_the_disk_is_refused(monkeypatch):
  # As somebody who may write there.
  monkeypatch.setattr(os, 'geteuid', lambda: os.stat('/').st_uid)
  with pytest.raises(ValueError, match='run_dir=/ holds files that are not'):
    run_folder.RunFolder('/')


@pytest.mark.parametrize(
  'name, content',
  [
    ('.lock', '4711'),
    ('flags.txt', '--seed=0\n'),
    ('checkpoints/round_00000001/manifest.json', ''),
  ],
)
def test_people_may_add_files_to_the_folder_of_a_run(name, content, tmp_path):
  (tmp_path / 'notes.txt').write_text('mine')
  path = tmp_path / name
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(content)
  with run_folder.RunFolder(tmp_path) as folder:
    assert folder.path == tmp_path


def refuse_a_run(path):
  with pytest.raises(KeyError), run_folder.RunFolder(path) as folder:
    (folder.path / 'checkpoints').mkdir(exist_ok=True)
    (path / 'client_states').mkdir(exist_ok=True)
    (path / 'client_states' / 'shared_by_all_workers').touch()
    raise KeyError('refused')


@pytest.mark.parametrize('depth', ['', 'a', 'a/b/c'])
def test_a_refused_run_leaves_nothing_behind(depth, tmp_path):
  refuse_a_run(tmp_path / depth)
  assert not list(tmp_path.iterdir())


def test_a_refused_run_leaves_an_earlier_one_as_it_was(tmp_path):
  with run_folder.RunFolder(tmp_path) as folder:
    folder.write_flags(FLAGS)
    (folder.path / 'checkpoints').mkdir()
    (folder.path / 'checkpoints' / 'round_00000001').mkdir()
  (tmp_path / '.lock').unlink()  # As in a copy.
  before = sorted(tmp_path.rglob('*'))
  refuse_a_run(tmp_path)
  assert sorted(tmp_path.rglob('*')) == before


def test_a_run_that_has_begun_is_kept(tmp_path):
  with pytest.raises(KeyError), run_folder.RunFolder(tmp_path / 'a') as folder:
    folder.keep()
    raise KeyError('failed')
  assert (tmp_path / 'a' / '.lock').exists()


def test_a_lock_that_is_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
  """Another run is refused between opening the file and locking it."""
  lock, removed = fcntl.flock, []

  def remove_and_lock(descriptor, operation):
    if not removed:
      removed.append((tmp_path / 'a' / '.lock').stat().st_ino)
      (tmp_path / 'a' / '.lock').unlink()
      (tmp_path / 'a').rmdir()
    lock(descriptor, operation)

  monkeypatch.setattr(fcntl, 'flock', remove_and_lock)
  with run_folder.RunFolder(tmp_path / 'a'):
    assert (tmp_path / 'a' / '.lock').read_text() == str(os.getpid())
    with pytest.raises(run_folder.RunFolderError, match='used by another run'):
      run_folder.RunFolder(tmp_path / 'a')
  assert removed


def test_what_another_run_leaves_meanwhile_is_not_removed(
  tmp_path, monkeypatch
):
  lock, checkpoint = fcntl.flock, tmp_path / 'checkpoints' / 'round_00000001'

  def train_and_lock(descriptor, operation):
    checkpoint.mkdir(parents=True)
    lock(descriptor, operation)

  monkeypatch.setattr(fcntl, 'flock', train_and_lock)
  refuse_a_run(tmp_path)
  assert checkpoint.exists()


def test_read_only_folder_is_refused(tmp_path, failing_calls):
  denied = PermissionError(13, 'Permission denied')
  with (
    failing_calls(['open'], denied, 1),
    pytest.raises(ValueError, match='not writable: Permission denied'),
  ):
    run_folder.RunFolder(tmp_path)


FLAGS = {
  'process': 'grouping',
  'rate': 1e-05,
  'augment': False,
  'resume': True,
  'note': 'x = "y" # z, ö',
  'empty': '',
  'unset': None,
  'rounds': 30,
}


def test_flag_file_is_read_by_absl(folder):
  folder.write_flags(FLAGS)
  values = absl_flags.FlagValues()
  for name, value in FLAGS.items():
    define = {
      bool: absl_flags.DEFINE_bool,
      float: absl_flags.DEFINE_float,
      int: absl_flags.DEFINE_integer,
    }.get(type(value), absl_flags.DEFINE_string)
    define(name, None, '', flag_values=values)
  absl_flags.DEFINE_string('flagfile', None, '', flag_values=values)
  values(['program', f'--flagfile={folder.path}/flags.txt'])
  assert {name: values[name].value for name in FLAGS} == FLAGS


def test_flag_file_is_sorted_and_round_trips(folder):
  file = folder.path / 'flags.txt'
  assert run_folder.read_flags(file) is None
  folder.write_flags(FLAGS)
  first = file.read_bytes()
  folder.write_flags(dict(reversed(FLAGS.items())))
  assert file.read_bytes() == first
  assert run_folder.read_flags(file) == {
    'augment': 'false',
    'empty': '',
    'note': 'x = "y" # z, ö',
    'process': 'grouping',
    'rate': '1e-05',
    'resume': 'true',
    'rounds': '30',
  }


@pytest.mark.parametrize('value', ['a\nb', ' a', 'a\r'])
def test_flag_of_several_lines_is_refused(folder, value):
  with pytest.raises(ValueError, match='--note='):
    folder.write_flags({'note': value})


def test_every_changed_flag_is_caught(folder):
  file = folder.path / 'flags.txt'
  run_folder.check_flags(file, FLAGS)  # Nothing to compare with yet.
  folder.write_flags(FLAGS)
  run_folder.check_flags(file, FLAGS)
  run_folder.check_flags(file, {**FLAGS, 'rounds': 31}, free={'rounds'})
  for name in FLAGS:
    with pytest.raises(checkpoints.FingerprintMismatch) as caught:
      run_folder.check_flags(file, {**FLAGS, name: 'other'}, free={'seed'})
    assert f'\n{name} ' in str(caught.value)
    assert str(caught.value).count('\n') == 2


def test_damaged_flag_file_is_one_sentence(folder, refusal):
  file = folder.path / 'flags.txt'
  file.write_text('--a=1\nrubbish\n')
  with refusal("'rubbish'"):
    run_folder.read_flags(file)


def test_summary_is_strict_json(folder):
  plain = {'count': 3, 'name': 'a', 'done': True, 'none': None}
  results.write(
    folder,
    {
      'accuracy': np.float32(0.5),
      'losses': [math.nan, np.array([1.0, math.inf]), (2,)],
      'half': ml_dtypes.bfloat16(1.5),
      **plain,
      'count': np.int64(3),
    },
  )

  def refuse(constant):
    raise AssertionError(constant)

  text = (folder.path / 'summary.json').read_text()
  read = json.loads(text, parse_constant=refuse)
  del read['files'], read['sha256']
  losses = [None, [1.0, None], [2]]
  assert read == {'accuracy': 0.5, 'losses': losses, 'half': 1.5, **plain}


def test_what_a_refused_run_leaves_does_not_block_the_next(tmp_path):
  """Such as packed data in a cache inside of the run's folder."""
  path = tmp_path / 'run'
  with pytest.raises(ValueError), run_folder.RunFolder(path):
    (path / 'cache').mkdir()
    raise ValueError('Something is wrong.')
  assert (path / 'cache').is_dir()
  with run_folder.RunFolder(path) as folder:
    folder.keep()


def test_free_space(folder):
  folder.require_free_space(1)
  with pytest.raises(run_folder.RunFolderError, match=f'{2**60} bytes'):
    folder.require_free_space(2**60)


def test_failed_write_leaves_the_old_file(folder, failing_calls):
  folder.write('summary.json', '1')
  for name in ('open', 'write', 'fsync', 'replace'):
    error = OSError(28, 'No space left on device')
    with (
      failing_calls([name], error, 1),
      pytest.raises(run_folder.RunFolderError, match='No space left'),
    ):
      folder.write('summary.json', '2')
    assert (folder.path / 'summary.json').read_text() == '1'


def test_left_over_temporaries_are_swept(tmp_path):
  left = tmp_path / f'{durable_files.TEMPORARY_PREFIX}summary.json'
  left.write_text('half')
  with run_folder.RunFolder(tmp_path):
    assert not left.exists()
