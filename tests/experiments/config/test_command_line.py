"""Commands whose reader goes, as `| head -1` does, or that are told to end."""

import io
import os
import signal
import subprocess
import sys
import time
import types

import pytest
import pythons

from experiments import run
from experiments.config import command_line


def read_by_nobody(*command):
  """Runs a command into a pipe whose reader has gone."""
  reader, writer = os.pipe()
  os.close(reader)
  # Output in blocks, as it is by default.
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONUNBUFFERED'}
  try:
    return pythons.run(
      *command,
      capture_output=False,
      stdout=writer,
      stderr=subprocess.PIPE,
      env=environment,
    )
  finally:
    os.close(writer)


@pytest.mark.parametrize(
  'command',
  [
    'run --help',
    *(
      pytest.param(command, marks=pytest.mark.runs)
      for command in (
        *('run --list', 'reproduce --list', 'report --help', 'tune --help'),
        'export --help',
      )
    ),
  ],
)
def test_a_command_that_nobody_reads_ends_quietly(command):
  done = read_by_nobody('-m', *f'experiments.{command}'.split())
  assert (done.stderr, done.returncode) == ('', 141)


@pytest.fixture
def run_with_a_broken_pipe(monkeypatch, tmp_path):
  """Starts a run that meets a broken pipe in its first round."""

  def fail(*unused):
    raise BrokenPipeError(32, 'Broken pipe')

  building = types.SimpleNamespace(Run=types.SimpleNamespace(open=fail))
  monkeypatch.setattr(run, '_import_runner', lambda: (building, None))
  return lambda: run.main(
    [
      *('run', '--process=fedavg', '--dataset=digits'),
      *(f'--run_dir={tmp_path / "run"}', f'--cache_dir={tmp_path}'),
    ]
  )


def test_a_run_that_nobody_reads_is_not_a_failed_one(
  run_with_a_broken_pipe, monkeypatch
):
  """The error reaches `command_line.run`."""
  reader, writer = os.pipe()
  os.close(reader)
  with (
    os.fdopen(writer, 'wb', buffering=0) as stdout,
    monkeypatch.context() as m,
  ):
    m.setattr(sys, 'stdout', io.TextIOWrapper(stdout))
    with pytest.raises(BrokenPipeError):
      run_with_a_broken_pipe()


def test_a_broken_pipe_of_a_worker_is_a_failure(run_with_a_broken_pipe, capsys):
  assert run_with_a_broken_pipe() == 1
  assert 'Broken pipe' in capsys.readouterr().err


@pytest.mark.parametrize('code', [0, 2])
def test_the_exit_code_is_the_commands(code, capsys):
  with pytest.raises(SystemExit) as ended:
    command_line.run(lambda: code)
  assert ended.value.code == code


def test_without_an_output_a_command_runs_all_the_same(monkeypatch):
  monkeypatch.setattr(sys, 'stdout', None)
  with pytest.raises(SystemExit) as ended:
    command_line.run(lambda: 0)
  assert ended.value.code == 0


def test_a_broken_pipe_of_something_else_is_no_end():
  def fail():
    raise BrokenPipeError

  with pytest.raises(BrokenPipeError):
    command_line.run(fail)


LOOP = """
import sys, time
from experiments.config import command_line
with command_line.GracefulStop() as stop:
  print('ready', flush=True)
  for _ in range(200):
    if stop.requested:
      break
    time.sleep(0.05)
  while sys.argv[1] == 'stubborn':
    time.sleep(0.05)
  print('saved', flush=True)
sys.exit(stop.exit_code)
"""


def start_loop(manners):
  pipes = dict.fromkeys(('stdin', 'stderr'), subprocess.PIPE)
  return pythons.start('-c', LOOP, manners, **pipes)


@pytest.mark.parametrize(
  'number, code', [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_r17_first_signal_stops_after_the_round(number, code):
  run = start_loop('polite')
  assert run.stdout.readline() == 'ready\n'
  run.send_signal(number)
  out, err = run.communicate(timeout=30)
  assert (out, run.returncode) == ('saved\n', code)
  assert err == f'{number.name}: stopping; send it again to end at once.\n'


def test_r17_second_signal_ends_at_once():
  run = start_loop('stubborn')
  assert run.stdout.readline() == 'ready\n'
  run.send_signal(signal.SIGTERM)
  assert run.stderr.readline().startswith('SIGTERM')
  run.send_signal(signal.SIGINT)
  began = time.monotonic()
  out, _ = run.communicate(timeout=30)
  assert (out, run.returncode) == ('', 130)
  assert time.monotonic() - began < 15


def test_droppable_round_is_dropped_and_handlers_come_back():
  earlier = signal.getsignal(signal.SIGTERM)
  with command_line.GracefulStop() as stop:
    assert not stop.requested and stop.exit_code == 0
    with pytest.raises(command_line.RoundDropped), stop.droppable():
      os.kill(os.getpid(), signal.SIGTERM)
      time.sleep(5)
    assert stop.requested and stop.exit_code == 143
  assert signal.getsignal(signal.SIGTERM) == earlier


def test_outside_a_droppable_round_nothing_is_raised():
  with command_line.GracefulStop() as stop:
    with stop.droppable():
      pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    assert stop.exit_code == 130
