"""What remote workers must see before a run begins."""

import os
import types

import pytest

from experiments import client_states, worker_context
from experiments.settings import make
from tff_ssl.algorithms import PROCESSES
from tff_ssl.simulation import client_reader, workers

STORE = types.SimpleNamespace(path='/shared/store')


@pytest.fixture
def read(monkeypatch):
  """Returns the files that workers were asked for; none is started."""
  paths = []

  def check_readable(path, context):
    assert context == 'the workers'
    if not path.startswith('/shared'):
      # As on the machine of the run: it is there.
      assert os.path.getsize(path) > 0
    paths.append(path)

  monkeypatch.setattr(client_reader, 'check_readable', check_readable)
  monkeypatch.setattr(
    workers, 'install_context', lambda **arguments: 'the workers'
  )
  return paths


def install(process, folder):
  settings = make(
    {
      'process': process,
      'dataset': 'digits',
      'run_dir': str(folder),
      'worker_addresses': '127.0.0.1:1',
    }
  )
  worker_context.install(settings, PROCESSES[process], STORE)
  return settings


def test_clients_without_a_state_need_the_store_alone(read, tmp_path):
  install('fedavg', tmp_path / 'run')
  assert read == [STORE.path]


def test_states_must_lie_where_all_workers_find_them(read, tmp_path):
  settings = install('scaffold', tmp_path / 'run')
  store, probe = read
  assert store == STORE.path
  assert os.path.dirname(probe) == client_states.folder(settings)


def test_a_worker_that_cannot_see_them_is_refused(read, tmp_path, monkeypatch):
  def check_readable(path, context):
    if path != STORE.path:
      raise RuntimeError(f'A worker cannot read {path}')

  monkeypatch.setattr(client_reader, 'check_readable', check_readable)
  with pytest.raises(
    ValueError,
    match='--worker_addresses=127.0.0.1:1: A worker cannot read '
    f'{tmp_path}/run/client_states/',
  ):
    install('scaffold', tmp_path / 'run')
