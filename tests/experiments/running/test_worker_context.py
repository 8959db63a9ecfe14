"""What remote workers must see before a run begins."""

import os

import psutil
import pytest

from experiments.running import worker_context
from tff_ssl.simulation import client_reader, workers

STORE = '/shared/store'


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


def install(states):
  worker_context.install(
    num_workers=None,
    worker_addresses='127.0.0.1:1',
    timeout_s=60.0,
    clients_per_round=4,
    store_path=STORE,
    client_state_folder=states,
  )


def test_clients_without_a_state_need_the_store_alone(read):
  install(None)
  assert read == [STORE]


def test_states_must_lie_where_all_workers_find_them(read, tmp_path):
  states = str(tmp_path / 'run' / 'client_states')
  install(states)
  store, probe = read
  assert store == STORE
  assert os.path.dirname(probe) == states


def test_a_worker_that_cannot_see_them_is_refused(read, tmp_path, monkeypatch):
  def check_readable(path, context):
    if path != STORE:
      raise RuntimeError(f'A worker cannot read {path}')

  monkeypatch.setattr(client_reader, 'check_readable', check_readable)
  with pytest.raises(
    ValueError,
    match='--worker_addresses=127.0.0.1:1: A worker cannot read '
    f'{tmp_path}/run/client_states/',
  ):
    install(str(tmp_path / 'run' / 'client_states'))


def test_local_workers_and_where_they_listen(monkeypatch, capsys):
  """Checked against the kernel's own table of sockets."""
  given = {}
  plain = workers.install_context

  def install_context(*arguments, **options):
    given.update(options)
    return plain(*arguments, **options)

  monkeypatch.setattr(workers, 'install_context', install_context)
  worker_context.install(
    num_workers=2,
    worker_addresses=None,
    timeout_s=7.0,
    clients_per_round=4,
    store_path=STORE,
    client_state_folder=None,
  )
  listening = [
    connection.laddr
    for child in psutil.Process().children()
    for connection in child.connections(kind='tcp')
    if connection.status == psutil.CONN_LISTEN
  ]
  workers.stop_workers()
  assert given['answer_timeout_s'] == 7
  assert {address.ip for address in listening} <= {'::', '0.0.0.0'}
  [line] = capsys.readouterr().out.splitlines()
  ports = ', '.join(map(str, sorted(address.port for address in listening)))
  assert len(listening) == 2
  assert f'on all network interfaces, without a password (port {ports})' in line
