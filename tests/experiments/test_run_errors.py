"""What `run.main` says and returns where a run cannot be had, or is asked."""

import builtins
import gc
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import types

import grpc
import numpy as np
import pytest
import tensorflow as tf

from datasets.sources import catalogue
from experiments import run
from experiments.artifacts import checkpoints
from experiments.config import flags, settings
from experiments.preparing import building
from tff_ssl.algorithms import PROCESSES

_ROOT = pathlib.Path(__file__).parents[2]
GROUPING = ('--process=grouping', '--dataset=digits', '--total_rounds=1')


@pytest.fixture
def where(tmp_path):
  return (f'--cache_dir={tmp_path / "cache"}', f'--run_dir={tmp_path / "run"}')


def main(*arguments):
  return run.main(['run', *map(str, arguments)])


@pytest.mark.parametrize(
  'arguments, message',
  [
    (('--process=groping',), '--process=groping'),
    (('--model=dens',), "--model=dens is unknown; .* Did you mean 'dense'"),
    (('--server_examples=5000',), 'server_examples=5000'),
    (('--dataset=emnist', '--data_dir=/nowhere'), '/nowhere'),
    (('--num_clients=six',), '--num_clients=six'),
    (('--run_dir={file}',), 'run_dir=.*file cannot be created'),
    (('--run_dir=/proc/self',), 'run_dir=/proc/self holds files that are not'),
    (('--run_dir={file}/run',), 'run_dir=.*run cannot be created'),
    (('--cache_dir={file}',), '--cache_dir=.*file cannot be created'),
    (('rounds',), "'rounds' is no flag"),
  ],
)
def test_refusals(arguments, message, where, tmp_path, capsys):
  file = tmp_path / 'file'
  file.write_text('')
  arguments = [argument.format(file=file) for argument in arguments]
  began = time.monotonic()
  assert main(*GROUPING, *where, *arguments) == 2
  assert time.monotonic() - began < 30
  error = capsys.readouterr().err
  assert error.startswith('error: ') and error.count('\n') == 1
  assert re.search(message, error), error
  assert list(tmp_path.iterdir()) == [file]


def test_a_run_that_is_refused_late_leaves_no_folder(where, tmp_path, capsys):
  """By then its data are packed, which the next run may use."""
  assert main(*GROUPING, *where, '--augment_crop=99') == 2
  assert '--augment_crop=99' in capsys.readouterr().err
  assert [path.name for path in tmp_path.iterdir()] == ['cache']


WITHOUT_TENSORFLOW = """
import json, sys
from experiments import run
for arguments in json.load(sys.stdin):
  code = run.main(['run', '--process=fedavg', *arguments])
  print(code, 'tensorflow' in sys.modules)
"""


def test_wrong_paths_are_told_before_tensorflow_is_imported(where, tmp_path):
  file = tmp_path / 'file'
  file.write_text('')
  with socket.create_server(('127.0.0.1', 0)) as server:
    port = server.getsockname()[1]
  commands = [
    ['--dataset=digits', '--run_dir=/proc/self'],
    ['--dataset=digits', f'--run_dir={file}'],
    ['--dataset=digits', f'--cache_dir={file}/cache'],
    ['--dataset=digits', '--flagfile=/nowhere.txt'],
    *(
      [f'--dataset={name}', f'--data_dir={tmp_path}']
      for name in ('npz', 'image_folder', 'emnist', 'mnist', 'organamnist')
    ),
    ['--process=fedul', '--dataset=npz_sets', f'--data_dir={tmp_path}'],
    ['--process=fedul', '--dataset=image_sets', f'--data_dir={tmp_path}'],
    # To be downloaded, through a proxy that does not exist.
    ['--dataset=emnist'],
  ]
  environment = {
    **{k: v for k, v in os.environ.items() if k != 'TFF_SSL_DATA_DIR'},
    'HOME': str(tmp_path),
    'https_proxy': f'http://127.0.0.1:{port}',
  }
  done = subprocess.run(
    [sys.executable, '-c', WITHOUT_TENSORFLOW],
    input=json.dumps([[*where, *command] for command in commands]),
    cwd=_ROOT,
    env=environment,
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert done.stdout == '2 False\n' * len(commands), done.stderr
  for command, error in zip(commands, done.stderr.splitlines(), strict=True):
    assert error.startswith('error: ')
    # The path that is wrong, or what to give.
    *_, path = command[-1].split('=')
    assert (path if '/' in path else '--data_dir') in error
  assert list(tmp_path.iterdir()) == [file]


def test_an_error_is_all_that_is_said(where, tmp_path):
  """TensorFlow says nothing before it, TFF nothing while Python ends."""
  loud = 'TF_CPP_MIN_LOG_LEVEL'
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'experiments.run', '--process=fedavg'),
      *('--dataset=npz', f'--data_dir={tmp_path}', *where),
    ],
    cwd=_ROOT,
    env={name: value for name, value in os.environ.items() if name != loud},
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 2
  assert re.fullmatch(r'error: .*train\.npz.*\n', done.stderr), done.stderr


class WorkerError(grpc.RpcError):
  """What TFF raises when a computation fails in the worker."""

  def details(self):
    return 'Failed to run: no such file\n\t [[{{node reader/Read}}]]'


def broken_process(error):
  def fail(state, keys):
    raise error

  return types.SimpleNamespace(
    initialize=lambda: {'w': np.zeros(3, np.float32)}, next=fail
  )


@pytest.mark.parametrize(
  'error, text',
  [
    (ValueError('bad shape'), 'bad shape'),
    (OSError(28, 'No space left on device'), 'No space left'),
    (RuntimeError('max_restarts=3 is used up'), 'max_restarts=3'),
    (
      tf.errors.ResourceExhaustedError(None, None, 'no memory\n\t node'),
      'no memory',
    ),
    (WorkerError(), 'in the TFF worker: Failed to run: no such file'),
  ],
)
def test_failures_on_the_way(error, text, where, capsys, monkeypatch):
  over_data = types.SimpleNamespace(read_model_weights=None)
  monkeypatch.setattr(building, 'build_process', lambda *unused: over_data)
  process = broken_process(error)
  process.get_model_weights = None
  monkeypatch.setattr(building, 'read_from_store', lambda *unused: process)
  assert main(*GROUPING, *where) == 1
  shown = capsys.readouterr().err
  assert shown.startswith('error: ') and text in shown
  assert shown.count('\n') == 1


def test_checkpoints_of_other_settings_are_refused(
  where, tmp_path, capsys, monkeypatch
):
  """Also where the flag file, which is compared first, is gone."""
  process = broken_process(AssertionError)
  folder = tmp_path / 'run' / 'checkpoints'
  manager = checkpoints.CheckpointManager(
    folder, process.initialize(), {'seed': 9}
  )
  manager.save(1, process.initialize())
  monkeypatch.setattr(building, 'build_process', lambda *unused: None)
  monkeypatch.setattr(building, 'read_from_store', lambda *unused: process)
  assert main(*GROUPING, *where) == 2
  rows = [line.split() for line in capsys.readouterr().err.splitlines()]
  assert ['seed', '9', '0'] in rows


def test_interrupt_during_the_import(monkeypatch, capsys):
  plain = builtins.__import__

  def interrupted(name, *arguments):
    if name == 'experiments.running' and 'training' in (arguments[2] or ()):
      raise KeyboardInterrupt
    return plain(name, *arguments)

  monkeypatch.setattr(builtins, '__import__', interrupted)
  assert main('--process=fedavg', '--dataset=digits') == 130
  assert gc.isenabled()
  assert capsys.readouterr().err == ''


@pytest.mark.parametrize(
  'argument', ['--help', '-h', '--h', '-help', '--help=true']
)
def test_help_without_a_process_says_how_to_start(argument, capsys):
  assert main(argument) == 0
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) < 60 and max(map(len, lines)) <= 80
  text = '\n'.join(lines)
  assert '--process=grouping --dataset=digits' in text
  for name in (*PROCESSES, *catalogue.SOURCES):
    assert name in text


def test_help_shows_the_values_of_what_a_process_uses(capsys):
  where = ('--process=grouping', '--dataset=digits', '--num_groups=3')
  assert main(*where, '--help') == 0
  lines = capsys.readouterr().out.splitlines()
  assert max(map(len, lines)) <= 80
  for line in (
    '  --num_groups=3  (your flag)',
    '  --threshold=0.95  (algorithm)',
    '  --batch_size=20  (data set)',
    '  --server_learning_rate=0.03  (--learning_rate)',
    '  --noniid_r=0.4  (data set)',
    '  --split=own  (default)',
  ):
    assert line in lines
  # What has no effect here is left out.
  shown = {line.split('=')[0].strip() for line in lines if '--' in line[:4]}
  unused = {'--bn_statistics', '--control_update', '--dirichlet_alpha'}
  assert not unused & shown
  made = settings.make(flags.parse(['run', *where]))
  assert {f'--{name}' for name in made.used} <= shown


def test_help_of_a_recipe_shows_its_values(capsys):
  name = 'native_writers:ns100_grouping_s2'
  given = (f'--recipe={name}', '--recipe_scale=0.5', '--seed=3')
  assert main(*given, '--help') == 0
  lines = capsys.readouterr().out.splitlines()
  for line in (
    f'  --process=grouping  (recipe {name})',
    f'  --num_groups=2  (recipe {name})',
    f'  --total_rounds=100  (recipe {name})',
    '  --seed=3  (your flag)',
    '  --cache_dir=~/.cache/tff_ssl  (default)',
  ):
    assert line in lines


def test_help_of_a_flag_that_gives_its_value_to_another(capsys):
  where = ('--process=fedavg', '--dataset=digits', '--labelled_fraction=0.1')
  assert main(*where, '--help') == 0
  lines = capsys.readouterr().out.splitlines()
  assert '  --mask_ratio=0.9  (--labelled_fraction)' in lines
  assert not any('--labelled_fraction  (' in line for line in lines)


@pytest.mark.parametrize(
  'arguments, message',
  [
    (
      ('--process=fedavg', '--dataset=digits', '--threshold=0.2'),
      '--threshold=0.2 has no effect: the process fedavg does not use it; '
      'leave it out.',
    ),
    (
      ('--process=grouping', '--dataset=digits', '--noniid_r=2'),
      '--noniid_r=2.0 must be a number between 0 and 1.',
    ),
    (
      (
        *('--process=grouping', '--dataset=digits'),
        *('--local_steps=2', '--local_epochs=2'),
      ),
      '--local_steps=2 and --local_epochs=2 exclude each other',
    ),
    (
      ('--process=grouping', '--dataset=digits', '--seeds=1,1'),
      '--seeds=1,1 must be different whole numbers',
    ),
    (('--recipe=native_writers:none',), '--recipe=native_writers:none is unkn'),
  ],
)
def test_help_refuses_what_a_run_refuses(arguments, message, capsys):
  assert main(*arguments) == 2
  of_a_run = capsys.readouterr()
  assert f'error: {message}' in of_a_run.err
  assert main(*arguments, '--help') == 2
  assert capsys.readouterr() == of_a_run


def test_help_of_what_there_is_not(capsys):
  assert main('--help', '--process=groping', '--dataset=digits') == 2
  assert '--process=groping is unknown' in capsys.readouterr().err
  assert main('--help', '--process=grouping') == 2
  assert 'add --dataset=NAME' in capsys.readouterr().err


def test_list(capsys):
  assert main('--list') == 0
  shown = capsys.readouterr().out
  for name in ('grouping', 'digits', 'native', 'small_cnn', 'median'):
    assert f'\n  {name} ' in shown
