"""Runs on several workers: what they count, how they fail and go on."""

import json
import os
import re
import signal
import threading
import time

import numpy as np
import pandas as pd
import portpicker
import pytest

from experiments import run
from tff_ssl.simulation import local_worker

SMALL = (
  '--process=grouping',
  '--dataset=digits',
  '--model=dense',
  '--num_clients=6',
  '--clients_per_round=4',
  '--server_examples=50',
  '--server_warmup_rounds=0',
  '--threshold=0.5',
)
UNEQUAL_COLUMNS = ['seconds', 'python_mib', 'worker_mib']


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  return f'--cache_dir={tmp_path_factory.mktemp("cache")}'


@pytest.fixture
def pair():
  """Two workers that runs of this process do not take for their own."""
  started = [local_worker.LocalWorker(threads_per_op=1) for _ in range(2)]
  for worker in started:
    local_worker._workers.discard(worker)
  yield started
  for worker in started:
    worker.stop()


def main(*arguments):
  return run.main(['run', *map(str, arguments)])


def addresses(workers):
  return ','.join(f'127.0.0.1:{worker.port}' for worker in workers)


def table_of(folder):
  return pd.read_csv(folder / 'metrics.csv')


def state_of(folder):
  """Returns the arrays of the last round's state."""
  newest = max((folder / 'checkpoints').glob('round_*'))
  with np.load(newest / 'state.npz') as arrays:
    return list(arrays.values())


def assert_close_tables(folder, other):
  for name, values in table_of(folder).drop(columns=UNEQUAL_COLUMNS).items():
    if name == 'group_sizes':
      assert list(values) == list(table_of(other)[name])
    else:
      np.testing.assert_allclose(values, table_of(other)[name], atol=1e-4)


def test_two_workers_here_or_by_address_equal_one(tmp_path, cache, pair):
  one, two, far = (tmp_path / name for name in ('one', 'two', 'far'))
  short = (*SMALL, cache, '--total_rounds=2')
  assert main(*short, f'--run_dir={one}') == 0
  assert main(*short, f'--run_dir={two}', '--workers=2') == 0
  assert (
    main(*short, f'--run_dir={far}', f'--worker_addresses={addresses(pair)}')
    == 0
  )
  assert list(table_of(two)['clients_participating']) == [4, 4]
  assert_close_tables(two, one)
  assert_close_tables(far, two)
  for value, other in zip(state_of(one), state_of(two), strict=True):
    np.testing.assert_allclose(value, other, rtol=0, atol=1e-6)
  # The same cut into parts, whoever computes them: the same bits.
  weights = [
    json.loads((folder / 'summary.json').read_text())['weights_sha256']
    for folder in (two, far)
  ]
  assert weights[0] == weights[1]


def test_without_workers_a_run_ends_and_can_be_resumed(
  tmp_path, cache, pair, capsys
):
  folder = tmp_path / 'run'

  def kill_after_two_rounds():
    path = folder / 'metrics.csv'
    while not path.exists() or path.read_bytes().count(b'\n') < 3:
      time.sleep(0.01)
    for worker in pair:
      os.kill(worker.pid, signal.SIGKILL)

  killer = threading.Thread(target=kill_after_two_rounds, daemon=True)
  killer.start()
  code = main(
    *SMALL,
    cache,
    f'--run_dir={folder}',
    f'--worker_addresses={addresses(pair)}',
    '--worker_timeout=2',
    '--total_rounds=100000',
  )
  killer.join()
  assert code == 1
  lines = capsys.readouterr().err.splitlines()
  [error] = [line for line in lines if line.startswith('error: ')]
  assert 'No TFF worker is left' in error
  for worker in pair:
    assert f'127.0.0.1:{worker.port}' in error
  rounds = len(table_of(folder))
  assert rounds >= 2
  assert (
    main(
      f'--flagfile={folder / "flags.txt"}',
      '--worker_addresses=',
      f'--total_rounds={rounds + 1}',
    )
    == 0
  )
  table = table_of(folder)
  assert list(table['round']) == list(range(1, rounds + 2))
  assert (table['clients_participating'] == 4).all()


def test_absent_workers_are_refused_before_training(tmp_path, cache, capsys):
  port = portpicker.pick_unused_port()
  began = time.monotonic()
  code = main(
    *SMALL,
    cache,
    f'--run_dir={tmp_path / "run"}',
    f'--worker_addresses=127.0.0.1:{port}',
    '--worker_timeout=2',
    '--total_rounds=1',
  )
  assert code == 2
  assert time.monotonic() - began < 30
  error = capsys.readouterr().err
  assert error.count('\n') == 1
  assert re.match(
    f'error: --worker_addresses=127.0.0.1:{port}: The TFF worker at .* does '
    'not answer within 2 s: check',
    error,
  )
