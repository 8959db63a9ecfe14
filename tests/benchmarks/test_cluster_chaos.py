"""Runs on a Ray cluster that a signal reaches at a random moment."""

import os
import subprocess

import pytest

from benchmarks import broken_runs, cluster_chaos

pytestmark = [pytest.mark.ray, pytest.mark.xdist_group('ray')]


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
  with cluster_chaos.ClusterChaos(
    0, tmp_path_factory.mktemp('cluster')
  ) as opened:
    yield opened


# `make chaos` tries the others, and more moments.
@pytest.mark.parametrize(
  ('point', 'fault'),
  [
    (1, 'SIGKILL_worker'),
    (1, 'SIGTERM_run'),
    # While Ray starts, which then ended the run without a word.
    (2, 'SIGKILL_head'),
  ],
)
def test_r8_r9_r11_r17_a_signal_on_a_cluster(point, fault, runs):
  assert runs.try_point(point, fault)[1] == broken_runs.SAME


def test_what_a_run_leaves_behind_shows(runs, monkeypatch):
  monkeypatch.setattr(cluster_chaos, '_GRACE_S', 1)
  mark = {cluster_chaos._MARK: str(os.getpid())}
  with subprocess.Popen(['sleep', '300'], env=os.environ | mark):
    assert 'sleep' in runs.try_point(1, 'SIGINT_run')[1]


def test_another_result_shows(runs, monkeypatch):
  other = {**runs._expected, 'metrics.csv': 'another'}
  monkeypatch.setattr(runs, '_expected', other)
  assert runs.try_point(1, 'SIGKILL_run')[1] == 'other metrics.csv'
