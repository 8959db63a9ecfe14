"""Commands on cores of their own."""

import sys

import pytest

from tff_ssl.simulation import core_sets, ray_commands


@pytest.fixture(autouse=True)
def own_locks(monkeypatch, tmp_path):
  """Runs on this machine must not hold the cores that tests ask for."""
  monkeypatch.setattr(core_sets, '_LOCKS', f'cores_of_{tmp_path.name}')


def test_a_command_sees_its_cores_its_folder_and_is_told(tmp_path):
  text = 'import os; print(sorted(os.sched_getaffinity(0)), os.getcwd())'
  ended = ray_commands.run(
    [sys.executable, '-c', f'import time; time.sleep(0.2); {text}'],
    cores=1,
    folder=str(tmp_path),
  )
  assert ended.exit_code == 0
  cores, folder = ended.output.split()
  assert len(cores.split(',')) == 1
  assert folder == str(tmp_path)


def test_how_a_command_fails(tmp_path):
  program = 'import sys; print("x" * 9000); sys.exit("the reason")'
  ended = ray_commands.run(
    [sys.executable, '-c', program], cores=1, folder=str(tmp_path)
  )
  assert ended.exit_code == 1
  assert ended.output.endswith('the reason\n')
  assert len(ended.output) == 4000
