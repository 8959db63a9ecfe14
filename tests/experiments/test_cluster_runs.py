"""Runs on a Ray cluster: what they count, how they fail and go on."""

import os
import re
import signal
import subprocess
import time

import numpy as np
import psutil
import pytest
import pythons
import run_folders
from run_folders import SMALL, metrics_of

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group('ray')]

GROUPING = (
  '--process=grouping',
  '--server_examples=50',
  '--server_warmup_rounds=0',
  '--threshold=0.5',
)
ON_CLUSTER = ('--cluster=local', '--cluster_parts=2')
AGAIN = ': start again to continue.$'
# Ray ends a run that writes to a node that is gone.
LOST = 'error: The (node|head|run was killed, or lost a process) .*' + AGAIN


def start(*arguments):
  """Starts a run in a process of its own, since Ray lives as long as one."""
  command = ('-m', 'experiments.run', *arguments)
  return pythons.start(*command, stderr=subprocess.PIPE)


def run(*arguments):
  process = start(*arguments)
  _, errors = process.communicate(timeout=300)
  return process.returncode, errors


def state_of(folder):
  """Returns the arrays of the last round's state."""
  newest = max((folder / 'checkpoints').glob('round_*'))
  with np.load(newest / 'state.npz') as arrays:
    return list(arrays.values())


def assert_close_tables(folder, other):
  for name, values in metrics_of(folder).items():
    if name in run_folders.OF_THE_MACHINE:
      continue
    if name == 'group_sizes':
      assert list(values) == list(metrics_of(other)[name])
    else:
      np.testing.assert_allclose(values, metrics_of(other)[name], atol=1e-4)


def assert_equals_one_worker(folder, one, *arguments):
  """Compares a run on a cluster with the same one on one worker, here."""
  run_folders.train(one, *arguments)
  assert (metrics_of(folder)['clients_participating'] == 4).all()
  assert_close_tables(folder, one)
  for value, other in zip(state_of(folder), state_of(one), strict=True):
    np.testing.assert_allclose(value, other, rtol=0, atol=1e-6)


def test_clients_with_states_equal_those_of_one_worker(tmp_path, cache):
  short = ('--process=scaffold', *SMALL, cache, '--total_rounds=5')
  folder = tmp_path / 'run'
  assert run(*short, *ON_CLUSTER, f'--run_dir={folder}')[0] == 0
  assert_equals_one_worker(folder, tmp_path / 'one', *short)


def rows_of(folder):
  path = folder / 'metrics.csv'
  return path.read_bytes().count(b'\n') if path.exists() else 0


def run_until(rows, folder, *arguments):
  """Starts a run, and returns its process once it has so many rounds."""
  process = start(*arguments)
  while rows_of(folder) <= rows:
    assert process.poll() is None, process.communicate()[1]
    time.sleep(0.05)
  return process


@pytest.fixture(scope='module')
def torn(tmp_path_factory):
  """The folder of a run that one fault after the other ends."""
  return tmp_path_factory.mktemp('torn') / 'run'


@pytest.mark.parametrize(
  'part, fault, then, code, last',
  [
    ('raylet', signal.SIGKILL, None, 1, LOST),
    ('gcs_server', signal.SIGKILL, None, 1, LOST),
    ('raylet', signal.SIGSTOP, None, 1, 'error: The node .*' + AGAIN),
    ('gcs_server', signal.SIGSTOP, None, 1, 'error: The head .*' + AGAIN),
    ('raylet', signal.SIGSTOP, signal.SIGTERM, 143, 'Stopped; continue with: '),
    ('gcs_server', signal.SIGSTOP, signal.SIGTERM, 143, 'Stopped; continue'),
  ],
  ids=[
    'node killed',
    'head killed',
    'node hangs',
    'head hangs',
    'node hangs, SIGTERM',
    'head hangs, SIGTERM',
  ],
)
def test_r8_r9_a_run_without_its_node_or_head_ends_and_says_so(
  part, fault, then, code, last, torn, cache
):
  process = run_until(
    *(rows_of(torn) + 2, torn, *GROUPING, *SMALL, cache, *ON_CLUSTER),
    *(f'--run_dir={torn}', '--part_timeout=10', '--total_rounds=100000'),
  )
  family = psutil.Process(process.pid).children(recursive=True)
  [victim] = [one for one in family if part in ''.join(one.cmdline()[:1])]
  victim.send_signal(fault)
  if then is not None:
    time.sleep(1)
    process.send_signal(then)
  _, errors = process.communicate(timeout=40)
  assert process.returncode == code
  # Ray complains, at any time, that nobody collects its metrics.
  lines = [line for line in errors.splitlines() if 'core_worker' not in line]
  assert re.match(last, lines[-1])
  assert_all_end(family)


def test_a_run_that_was_torn_ends_with_the_same_bits(torn, tmp_path, cache):
  ends = f'--total_rounds={rows_of(torn) + 2}'
  assert run(f'--flagfile={torn / "flags.txt"}', ends)[0] == 0
  whole = (*GROUPING, *SMALL, cache, *ON_CLUSTER, f'--run_dir={tmp_path}', ends)
  assert run(*whole)[0] == 0
  first, second = (
    run_folders.summary_of(folder)['weights_sha256']
    for folder in (torn, tmp_path)
  )
  assert first == second


def assert_all_end(family):
  _, alive = psutil.wait_procs(family, timeout=30)
  assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


def test_r11_r17_a_run_that_is_stopped_and_killed_ends_with_the_same_bits(
  tmp_path, cache
):
  """SIGTERM ends a round first, though Ray has a handler of its own."""
  whole, cut = tmp_path / 'whole', tmp_path / 'cut'
  short = (*GROUPING, *SMALL, cache)
  long_run = (*short, *ON_CLUSTER, f'--run_dir={cut}', '--total_rounds=100000')
  stopped = run_until(2, cut, *long_run)
  stopped.terminate()
  _, errors = stopped.communicate(timeout=60)
  assert stopped.returncode == 128 + signal.SIGTERM
  assert 'Stopped; continue with: ' in errors
  killed = run_until(rows_of(cut) + 2, cut, f'--flagfile={cut / "flags.txt"}')
  family = psutil.Process(killed.pid).children(recursive=True)
  assert any('raylet' in ' '.join(one.cmdline()) for one in family)
  os.kill(killed.pid, signal.SIGKILL)
  killed.communicate()
  rounds = rows_of(cut) + 2
  ends = f'--total_rounds={rounds}'
  assert run(f'--flagfile={cut / "flags.txt"}', ends)[0] == 0
  assert run(*short, *ON_CLUSTER, f'--run_dir={whole}', ends)[0] == 0
  assert list(metrics_of(cut)['round']) == list(range(1, rounds + 1))
  first, second = (
    run_folders.summary_of(folder)['weights_sha256'] for folder in (cut, whole)
  )
  assert first == second
  assert_equals_one_worker(whole, tmp_path / 'one', *short, ends)
  # By now, nothing is left of the cluster whose run was killed.
  assert_all_end(family)


def test_a_cluster_that_is_not_there(tmp_path, cache):
  began = time.monotonic()
  code, errors = run(
    *GROUPING,
    *SMALL,
    cache,
    f'--run_dir={tmp_path / "run"}',
    '--cluster=127.0.0.1:9',
    '--total_rounds=1',
  )
  assert code == 2
  assert time.monotonic() - began < 60
  [error] = [line for line in errors.splitlines() if line.startswith('error')]
  assert re.match(
    "error: --cluster=127.0.0.1:9: The Ray cluster '127.0.0.1:9' cannot be "
    'reached: .* Start one with `ray start --head`',
    error,
  )
