"""Whole runs side by side on a cluster."""

import signal
import subprocess
import time

import pytest
import pythons

from experiments.config import settings
from experiments.config.command_line import UsageError
from experiments.tables import child_runs, cluster_runs
from tff_ssl.simulation import ray_cluster

TABLE = """row,flags,published,source,seeds,note
common,--dataset=digits --model=dense --total_rounds={rounds},,,,
good,--process=server_only,,,"0,1",
bad,--process=server_only --server_learning_rate=1e30,,,0,
"""

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group('ray')]


def reproduce(folder, rounds, *arguments):
  table = folder / 'small.csv'
  table.write_text(TABLE.format(rounds=rounds))
  return pythons.start(
    *('-m', 'experiments.reproduce', f'--table={table}'),
    *(f'--runs_dir={folder / "runs"}', f'--cache_dir={folder / "cache"}'),
    *('--cluster=local', '--cluster_cores=1', *arguments),
    stderr=subprocess.PIPE,
  )


def test_runs_end_fail_and_are_told_and_skipped(tmp_path):
  process = reproduce(tmp_path, 4)
  out, errors = process.communicate(timeout=200)
  assert process.returncode == 1
  assert 'bad, seed 0 failed (exit code 1); the others go on' in errors
  assert 'error: No update was finite' in errors
  assert '2/3 done' in out
  for seed in (0, 1):
    assert (tmp_path / f'runs/small/good_seed{seed}/summary.json').exists()
  again = reproduce(tmp_path, 4, '--rows=good')
  out, _ = again.communicate(timeout=200)
  assert again.returncode == 0
  assert '2/2 were done before' in out


def test_sigterm_ends_all_runs_after_their_round(tmp_path, request):
  process = reproduce(tmp_path, 100_000, '--rows=good')
  # Else, if the test fails, they train for ever.
  request.addfinalizer(process.kill)
  folders = [tmp_path / f'runs/small/good_seed{seed}' for seed in (0, 1)]
  while not all(list(one.glob('checkpoints/round_*')) for one in folders):
    assert process.poll() is None, process.communicate()
    time.sleep(0.1)
  process.terminate()
  process.communicate(timeout=200)
  assert process.returncode == 128 + signal.SIGTERM
  for one in folders:
    before = (one / 'metrics.csv').read_bytes()
    assert before.endswith(b'\n')
    time.sleep(0.5)
    assert (one / 'metrics.csv').read_bytes() == before  # It has ended.


def test_a_cluster_that_is_too_small_or_not_there(monkeypatch):
  class Ray:
    def nodes(self):
      return [{'Resources': {'CPU': 2.0}}, {'Resources': {}}]

  monkeypatch.setattr(ray_cluster, 'connect', lambda address: None)
  monkeypatch.setattr(ray_cluster, 'import_ray', Ray)
  with pytest.raises(UsageError, match='--cluster_cores=3: no machine .* as'):
    cluster_runs.run_all([], cluster='auto', cores=3)

  def refuse(address):
    raise RuntimeError('nobody is there.')

  monkeypatch.setattr(ray_cluster, 'connect', refuse)
  with pytest.raises(UsageError, match='--cluster=auto: nobody is there'):
    cluster_runs.run_all([], cluster='auto', cores=1)


def test_without_a_cluster_they_run_here(monkeypatch):
  outcome = child_runs.Outcome((), None)
  monkeypatch.setattr(child_runs, 'run_all', lambda runs: (runs, outcome))
  runs = [child_runs.ChildRun('a', {}, settings)]
  assert cluster_runs.run_all(runs, cluster=None, cores=None) == (
    runs,
    outcome,
  )
  with pytest.raises(UsageError, match='--cluster_cores=2 has no effect'):
    cluster_runs.run_all(runs, cluster=None, cores=2)
