"""Cores and commands that run on them; what errors say, in one line."""

import os
import signal
import sys

import grpc
import pytest

from tff_ssl.simulation import processes


@pytest.fixture(autouse=True)
def own_locks(monkeypatch, tmp_path):
  """Runs on this machine must not hold the cores that tests ask for."""
  monkeypatch.setattr(processes, '_LOCKS', f'cores_of_{tmp_path.name}')


def test_cores_are_taken_once_and_given_back():
  allowed = os.sched_getaffinity(0)
  with processes.taken_cores(1) as first:
    assert len(first) == 1
    with processes.taken_cores(len(allowed)) as others:
      # Where one core is all there is, it is shared.
      assert others == (allowed - first or allowed)
  with processes.taken_cores(len(allowed)) as all_of_them:
    assert all_of_them == allowed


def run(program, folder, import_from='/'):
  return processes.run(
    [sys.executable, '-c', program],
    cores=1,
    folder=str(folder),
    import_from=str(import_from),
  )


def test_a_command_sees_its_cores_and_folders_and_is_told(tmp_path):
  library = tmp_path / 'library'
  library.mkdir()
  (library / 'my_module.py').write_text('VALUE = 7')
  ended = run(
    'import os, time; time.sleep(0.2); import my_module; '
    'print(len(os.sched_getaffinity(0)), os.getcwd(), my_module.VALUE)',
    tmp_path,
    library,
  )
  assert ended.returncode == 0, ended.stdout
  assert ended.stdout.split() == ['1', str(tmp_path), '7']


def test_how_a_command_fails(tmp_path):
  program = 'import sys; print("x" * 9000); sys.exit("the reason")'
  ended = run(program, tmp_path)
  assert ended.returncode == 1
  assert ended.stdout.endswith('the reason\n')
  assert len(ended.stdout) == 4000


def test_several_interrupts_are_one_sigterm(tmp_path, request):
  # As in what a script starts in the background.
  before = signal.signal(signal.SIGINT, signal.SIG_IGN)
  request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
  program = """
import os, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
os.kill(int(sys.argv[1]), signal.SIGINT)
time.sleep(0.5)
os.kill(int(sys.argv[1]), signal.SIGINT)
time.sleep(0.5)
print(len(told))
"""
  ended = processes.run(
    [sys.executable, '-c', program, str(os.getpid())],
    cores=1,
    folder=str(tmp_path),
    import_from='/',
  )
  assert (ended.returncode, ended.stdout) == (0, '1\n')
  assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


class RpcError(grpc.RpcError):
  """As gRPC raises it; its `str` is of several lines."""

  def __init__(self, details):
    self._details = details

  def details(self):
    return self._details


@pytest.mark.parametrize(
  'error, line',
  [
    (ValueError('bad shape\nat node x'), 'bad shape'),
    (ValueError(), 'ValueError'),
    (RpcError(None), 'RpcError'),
    (RpcError('Failed: no file\n\t [[{{node Read}}]]'), 'Failed: no file'),
    (
      RpcError(
        'Failed: 2 root error(s) found.\n  (0) ABORTED: first\n\t [[x]]\n  (1)'
      ),
      'Failed: 2 root error(s) found. (0) ABORTED: first',
    ),
    (RpcError('2 root error(s) found.'), '2 root error(s) found.'),
    (RpcError('y' * 501), 'y' * 500 + ' ...'),
  ],
)
def test_first_cause(error, line):
  assert processes.first_cause(error) == line
