"""Cores that a process takes for itself."""

import os

from tff_ssl.simulation import processes


def test_cores_are_taken_once_and_given_back(monkeypatch, tmp_path):
  # Runs on this machine must not hold the cores that are asked for.
  monkeypatch.setattr(processes, '_LOCKS', f'cores_of_{tmp_path.name}')
  allowed = os.sched_getaffinity(0)
  with processes.taken_cores(1) as first:
    assert len(first) == 1
    with processes.taken_cores(len(allowed)) as others:
      # Where one core is all there is, it is shared.
      assert others == (allowed - first or allowed)
  with processes.taken_cores(len(allowed)) as all_of_them:
    assert all_of_them == allowed
