"""Cores that a process takes for itself."""

import os

from tff_ssl.simulation import core_sets


def test_cores_are_taken_once_and_given_back(monkeypatch, tmp_path):
  # Runs on this machine must not hold the cores that are asked for.
  monkeypatch.setattr(core_sets, '_LOCKS', f'cores_of_{tmp_path.name}')
  allowed = os.sched_getaffinity(0)
  with core_sets.taken(1) as first:
    assert len(first) == 1
    with core_sets.taken(len(allowed)) as others:
      # Where one core is all there is, it is shared.
      assert others == (allowed - first or allowed)
  with core_sets.taken(len(allowed)) as all_of_them:
    assert all_of_them == allowed
