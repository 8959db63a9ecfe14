"""Runs one after another, with a small program in place of the runner."""

import os
import pathlib
import signal
import subprocess
import threading
import time

import numpy as np
import psutil
import pytest
import pythons
import run_folders

from experiments.config import settings
from experiments.config.command_line import UsageError
from experiments.preparing import data
from experiments.tables import child_runs

# Ends as its seed says, or leaves a file in its folder.
PROGRAM = """
import json, os, pathlib, signal, sys, time
flags = dict(a[2:].split('=') for a in sys.argv[2:])
folder = pathlib.Path(flags['run_dir'])
folder.mkdir(parents=True)
codes = {'1': 3, '6': 141, '7': 2}
if flags['seed'] in codes:
  sys.exit(codes[flags['seed']])
if flags['seed'] == '2':
  os.kill(os.getpid(), signal.SIGKILL)
if flags['seed'] == '3':
  signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
  (folder / 'ready').touch()
  time.sleep(60)
(folder / 'done').touch()
"""


@pytest.fixture
def make(monkeypatch, tmp_path):
  monkeypatch.setattr(child_runs, '_BOUND_RUN', PROGRAM)

  def make(*seeds):
    runs = []
    for seed in seeds:
      folder = str(tmp_path / str(seed))
      given = {'process': 'fedavg', 'dataset': 'digits', 'seed': seed}
      given['run_dir'] = folder
      made = settings.make(given)
      runs.append(child_runs.ChildRun(f'seed {seed}', given, made))
    return runs

  return make


def test_failing_and_killed_runs_do_not_stop_the_others(make, tmp_path, capfd):
  outcome = child_runs.run_all(make(1, 2, 4))
  assert outcome.failed == ('seed 1', 'seed 2')
  assert outcome.exit_code == 1
  assert (tmp_path / '4' / 'done').exists()
  printed = capfd.readouterr()
  assert 'seed 1 failed (exit code 3)' in printed.err
  assert 'seed 2 failed (exit code -9)' in printed.err
  assert '0/3 done, ETA 1 min' in printed.out
  assert printed.out.endswith('1/3 done\n')


@pytest.mark.parametrize('are_alike', [False, True])
def test_runs_that_are_alike_end_with_the_first_that_is_refused(
  make, tmp_path, capfd, are_alike
):
  outcome = child_runs.run_all(make(7, 1, 4), are_alike=are_alike)
  assert outcome.exit_code == 1
  assert outcome.failed == (('seed 7',) if are_alike else ('seed 7', 'seed 1'))
  assert (tmp_path / '4').exists() != are_alike
  said = 'the others are not tried' if are_alike else 'the others go on'
  assert f'seed 7 failed (exit code 2); {said}' in capfd.readouterr().err


def test_finished_runs_are_skipped(make, tmp_path, capfd):
  runs = make(4, 1, 5)
  run_folders.write_finished(runs[1].settings)
  assert child_runs.run_all(runs).exit_code == 0
  assert (tmp_path / '4' / 'done').exists()
  assert not (tmp_path / '1' / 'done').exists()
  out = capfd.readouterr().out
  assert '1/3 were done before.' in out
  assert '2/3 done, ETA' in out and out.endswith('3/3 done\n')


def test_other_flags_or_fewer_rounds_are_not_finished(make):
  (run,) = make(4)
  assert not child_runs.is_finished(run.settings)
  run_folders.write_finished(run.settings)
  assert child_runs.is_finished(run.settings)
  folder = pathlib.Path(run.settings.run_dir)
  summary = run_folders.summary_of(folder)
  for other in (
    {'rounds': run.settings.total_rounds - 1},
    {'flags': summary['flags'] | {'learning_rate': 0.5}},
    {'partition_digest': 'of other data'},
  ):
    run_folders.write(folder, **{**summary, **other})
    assert not child_runs.is_finished(run.settings)


def test_results_of_other_data_are_not_those_of_these(tmp_path):
  """Files of the same names in another folder, or edited since."""
  rng = np.random.default_rng(0)

  def write(folder, labels=(0, 1, 2)):
    folder.mkdir(exist_ok=True)
    for split in ('train', 'test'):
      images = rng.integers(0, 256, [60, 6, 6], dtype=np.uint8)
      y = np.resize(labels, 60)
      np.savez(folder / f'{split}.npz', images=images, labels=y)

  def run_on(folder):
    given = {'process': 'fedavg', 'dataset': 'npz', 'data_dir': str(folder)}
    given |= {'run_dir': str(tmp_path / 'run'), 'num_clients': 3}
    given['cache_dir'] = str(tmp_path / 'cache')
    return child_runs.ChildRun('run', given, settings.make(given))

  here, there = tmp_path / 'here', tmp_path / 'there'
  write(here)
  write(there)
  run_folders.write_finished(run_on(here).settings)
  assert child_runs.is_finished(run_on(here).settings)
  assert not child_runs.is_finished(run_on(there).settings)
  write(here)  # Other images; the labels are the same.
  data.forget()  # As in another process.
  assert not child_runs.is_finished(run_on(here).settings)
  (here / 'train.npz').unlink()
  data.forget()
  with pytest.raises(UsageError, match='but not its data any more: .*train.n'):
    child_runs.is_finished(run_on(here).settings)


def test_a_signal_stops_the_current_run_and_begins_no_other(make, tmp_path):
  ready = tmp_path / '3' / 'ready'

  def stop():
    while not ready.exists():
      time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

  before = signal.getsignal(signal.SIGTERM)
  thread = threading.Thread(target=stop)
  thread.start()
  outcome = child_runs.run_all(make(4, 3, 5))
  thread.join()
  assert outcome.exit_code == 128 + signal.SIGTERM
  assert outcome.failed == ()
  assert (tmp_path / '4' / 'done').exists()
  assert not (tmp_path / '5').exists()
  assert signal.getsignal(signal.SIGTERM) is before


def test_where_nobody_reads_no_other_run_begins(make, tmp_path, capsys):
  with pytest.raises(BrokenPipeError):
    child_runs.run_all(make(4, 6, 5))
  assert not (tmp_path / '5').exists()
  assert 'failed' not in capsys.readouterr().err


PARENT = """
import sys
from experiments.tables import child_runs
from experiments.config import settings
given = {'process': 'fedavg', 'dataset': 'digits', 'run_dir': sys.argv[1]}
made = settings.make(given)
child_runs.run_all([child_runs.ChildRun('a', given, made)])
"""


@pytest.mark.runs
def test_a_run_does_not_outlast_who_started_it(tmp_path):
  silent = dict.fromkeys(('stdout', 'stderr'), subprocess.DEVNULL)
  parent = pythons.start('-c', PARENT, tmp_path / 'run', **silent)
  try:
    children = []
    deadline = time.monotonic() + 60
    # A second of its own work: far past its first lines, in the imports.
    while not any(c.cpu_times().user > 1 for c in children):
      assert parent.poll() is None and time.monotonic() < deadline
      children = psutil.Process(parent.pid).children()
      time.sleep(0.05)
  finally:
    parent.kill()
    parent.wait()
  assert not psutil.wait_procs(children, timeout=5)[1]
