"""What `run.main` says and returns where a run cannot be had, or is asked."""

import builtins
import gc
import json
import os
import re
import socket
import time
import types

import numpy as np
import pytest
import pythons
import tensorflow as tf

from datasets.sources import catalogue
from experiments import run
from experiments.artifacts import checkpoints, run_folder
from experiments.config import flags
from experiments.preparing import building
from experiments.tables import recipes
from tff_ssl.algorithms import PROCESSES

GROUPING = ('--process=grouping', '--dataset=digits', '--total_rounds=1')


@pytest.fixture
def where(tmp_path):
  return (f'--cache_dir={tmp_path / "cache"}', f'--run_dir={tmp_path / "run"}')


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
def test_refusals(arguments, message, where, tmp_path, error_of):
  file = tmp_path / 'file'
  file.write_text('')
  arguments = [argument.format(file=file) for argument in arguments]
  began = time.monotonic()
  error = error_of(run.main, *GROUPING, *where, *arguments)
  assert time.monotonic() - began < 30
  assert re.search(message, error), error
  assert list(tmp_path.iterdir()) == [file]


def test_a_run_that_is_refused_late_leaves_no_folder(where, tmp_path, error_of):
  """By then its data are packed, which the next run may use."""
  error = error_of(run.main, *GROUPING, *where, '--augment_crop=99')
  assert '--augment_crop=99' in error
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
  given = json.dumps([[*where, *command] for command in commands])
  done = pythons.run('-c', WITHOUT_TENSORFLOW, input=given, env=environment)
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
  done = pythons.run(
    *('-m', 'experiments.run', '--process=fedavg', '--dataset=npz'),
    *(f'--data_dir={tmp_path}', *where),
    env={name: value for name, value in os.environ.items() if name != loud},
  )
  assert done.returncode == 2
  assert re.fullmatch(r'error: .*train\.npz.*\n', done.stderr), done.stderr


@pytest.fixture
def broken_process(monkeypatch):
  """A function to the process of the next run, which fails with an error."""

  def build(error):
    def fail(state, keys):
      raise error

    process = types.SimpleNamespace(
      initialize=lambda: {'w': np.zeros(3, np.float32)},
      next=fail,
      get_model_weights=None,
    )
    over_data = types.SimpleNamespace(read_model_weights=None)
    monkeypatch.setattr(
      building, 'build_process', lambda *unused, **more: over_data
    )
    monkeypatch.setattr(
      building.client_reader, 'compose_with_reader', lambda *unused: process
    )
    return process

  return build


@pytest.mark.parametrize(
  'error, text',
  [
    (ValueError('bad shape'), 'bad shape'),
    (OSError(28, 'No space left on device'), 'No space left'),
    (
      OSError(5, 'Input/output error', '/x/a'),
      '/x/a: Input/output error; make',
    ),
    # As where summary.json cannot be written.
    (
      run_folder.RunFolderError('summary.json cannot be'),
      'summary.json cannot',
    ),
    (RuntimeError('max_restarts=3 is used up'), 'max_restarts=3'),
    (
      tf.errors.ResourceExhaustedError(None, None, 'no memory\n\t node'),
      'no memory',
    ),
    (
      tf.errors.InvalidArgumentError(
        None, None, 'At client 2 of 4: {{function_node x}} no such file\n at'
      ),
      'A round failed: At client 2 of 4: no such file; mend that',
    ),
  ],
)
def test_failures_on_the_way(error, text, where, broken_process, error_of):
  broken_process(error)
  assert text in error_of(run.main, *GROUPING, *where, code=1)


def test_a_summary_of_before_ends_where_a_run_begins(
  where, tmp_path, broken_process, error_of
):
  """Else it would say of its files what no longer holds."""
  folder = tmp_path / 'run'
  folder.mkdir()
  (folder / '.lock').write_text('1')
  (folder / 'summary.json').write_text('{}')
  broken_process(RuntimeError('killed'))
  assert 'killed' in error_of(run.main, *GROUPING, *where, code=1)
  assert not (folder / 'summary.json').exists()


def test_checkpoints_of_other_settings_are_refused(
  where, tmp_path, capsys, broken_process
):
  """Also where the flag file, which is compared first, is gone."""
  process = broken_process(AssertionError)
  folder = tmp_path / 'run' / 'checkpoints'
  manager = checkpoints.CheckpointManager(
    folder, process.initialize(), {'seed': 9}
  )
  manager.save(1, process.initialize())
  assert run.main(['run', *GROUPING, *where]) == 2
  rows = [line.split() for line in capsys.readouterr().err.splitlines()]
  assert ['seed', '9', '0'] in rows


def test_interrupt_during_the_import(monkeypatch, capsys):
  plain = builtins.__import__

  def interrupted(name, *arguments):
    if name == 'experiments.running' and 'training' in (arguments[2] or ()):
      raise KeyboardInterrupt
    return plain(name, *arguments)

  monkeypatch.setattr(builtins, '__import__', interrupted)
  assert run.main(['run', '--process=fedavg', '--dataset=digits']) == 130
  assert gc.isenabled()
  assert capsys.readouterr().err == ''


@pytest.fixture
def lines_of(capsys):
  """A function from arguments to the lines of the page that they ask for."""

  def show(*arguments):
    assert run.main(['run', *arguments]) == 0
    return capsys.readouterr().out.splitlines()

  return show


@pytest.mark.parametrize(
  'argument', ['--help', '-h', '--h', '-help', '--help=true']
)
def test_help_without_a_process_says_how_to_start(argument, lines_of):
  lines = lines_of(argument)
  assert len(lines) < 60 and max(map(len, lines)) <= 80
  text = '\n'.join(lines)
  assert '--process=grouping --dataset=digits' in text
  for name in (*PROCESSES, *catalogue.SOURCES):
    assert name in text


_RECIPE = 'native_writers:ns100_grouping_s2'


@pytest.mark.parametrize(
  'given, shown, unused',
  [
    (
      ('--process=grouping', '--dataset=digits', '--num_groups=3'),
      {
        '  --num_groups=3  (your flag)',
        '  --threshold=0.95  (algorithm)',
        '  --batch_size=20  (data set)',
        '  --server_learning_rate=0.03  (--learning_rate)',
        '  --noniid_r=0.4  (data set)',
        '  --split=own  (default)',
      },
      {'--bn_statistics', '--control_update', '--dirichlet_alpha'},
    ),
    (
      (f'--recipe={_RECIPE}', '--recipe_scale=0.5', '--seed=3'),
      {
        f'  --process=grouping  (recipe {_RECIPE})',
        f'  --num_groups=2  (recipe {_RECIPE})',
        f'  --total_rounds=100  (recipe {_RECIPE})',
        '  --seed=3  (your flag)',
        '  --cache_dir=~/.cache/tff_ssl  (default)',
      },
      set(),
    ),
    # A flag that gives its value to another.
    (
      ('--process=fedavg', '--dataset=digits', '--labelled_fraction=0.1'),
      {'  --mask_ratio=0.9  (--labelled_fraction)'},
      {'--labelled_fraction'},
    ),
  ],
)
def test_help_shows_the_values_of_what_a_run_uses(
  given, shown, unused, lines_of
):
  lines = lines_of(*given, '--help')
  # But for the recipe's name.
  assert max(len(line.replace(_RECIPE, '')) for line in lines) <= 80
  assert shown <= set(lines)
  # What has no effect here is left out.
  names = {line.split('=')[0].strip() for line in lines if '--' in line[:4]}
  assert not unused & names
  made = recipes.make(flags.parse(['run', *given]))
  assert {f'--{name}' for name in made.used} <= names


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
  assert run.main(['run', *arguments]) == 2
  of_a_run = capsys.readouterr()
  assert f'error: {message}' in of_a_run.err
  assert run.main(['run', *arguments, '--help']) == 2
  assert capsys.readouterr() == of_a_run


def test_help_of_what_there_is_not(error_of):
  of_an_unknown = ('--help', '--process=groping', '--dataset=digits')
  assert '--process=groping is unknown' in error_of(run.main, *of_an_unknown)
  without_data = ('--help', '--process=grouping')
  assert 'add --dataset=NAME' in error_of(run.main, *without_data)


def test_list(lines_of):
  shown = '\n'.join(lines_of('--list'))
  for name in ('grouping', 'digits', 'native', 'small_cnn', 'median'):
    assert f'\n  {name} ' in shown
