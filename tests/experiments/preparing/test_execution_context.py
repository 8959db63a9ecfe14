"""What computes a run: this process, a worker, or a cluster."""

import os
import types

import psutil
import pytest
import pythons

from experiments.preparing import execution_context
from tff_ssl.simulation import ray_context, worker_context

STORE = '/shared/store'


def install(states=None, **changed):
  given = {
    'cluster': 'far:6379',
    'cluster_parts': 8,
    'cluster_cores': 3,
    'part_timeout': 70.0,
    'context': 'in_process',
    'device': 'auto',
    'clients_per_round': 4,
  }
  execution_context.install(
    types.SimpleNamespace(**{**given, **changed}),
    store_path=STORE,
    client_state_folder=states,
  )


@pytest.fixture
def asked(monkeypatch):
  """Returns the arguments with which a cluster was asked for."""
  given = {}

  def install_context(address, **options):
    given.update(options, address=address)

  monkeypatch.setattr(ray_context, 'install_ray_context', install_context)
  return given


def test_a_cluster_is_asked_for_what_the_flags_say(asked):
  install()
  assert asked == {
    'address': 'far:6379',
    'num_parts': 4,  # As many as clients.
    'cores_per_process': 3,
    'part_timeout_s': 70.0,
    'needed_files': [STORE],
  }


def test_states_must_lie_where_all_machines_find_them(asked, tmp_path):
  states = str(tmp_path / 'run' / 'client_states')
  install(states)
  store, probe = asked['needed_files']
  assert store == STORE
  assert os.path.dirname(probe) == states
  assert os.path.getsize(probe) > 0


def test_a_cluster_that_cannot_be_used_is_refused_by_its_flag(monkeypatch):
  def refuse(address, **options):
    raise RuntimeError('nobody is there.')

  monkeypatch.setattr(ray_context, 'install_ray_context', refuse)
  with pytest.raises(ValueError, match='--cluster=far:6379: nobody is there'):
    install()


def _listening():
  me = psutil.Process()
  return {
    connection.laddr
    for process in (me, *me.children(recursive=True))
    for connection in process.connections(kind='tcp')
    if connection.status == psutil.CONN_LISTEN
  }


@pytest.mark.dear
def test_s1_only_a_worker_listens_and_says_where(capsys):
  """Checked against the kernel's own table of sockets."""
  before = _listening()
  install(cluster=None)
  assert _listening() == before
  assert not capsys.readouterr().out
  install(cluster=None, context='worker')
  listening = _listening() - before
  worker_context.stop_workers()
  assert {address.ip for address in listening} <= {'::', '0.0.0.0'}
  [line] = capsys.readouterr().out.splitlines()
  [port] = {address.port for address in listening}
  assert f'on all network interfaces, without a password (port {port})' in line


def test_a_device_that_is_not_there_is_refused():
  with pytest.raises(ValueError, match="device='gpu': TensorFlow sees no GPU"):
    install(cluster=None, device='gpu')


@pytest.mark.parts
def test_a_command_that_computes_nothing_with_tff_ends_without_a_word():
  """TFF's own context would print a traceback."""
  done = pythons.run(
    '-c',
    'import tensorflow_federated\n'
    'from experiments.preparing import execution_context\n'
    'execution_context.set_up_tensorflow()',
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
    check=True,
  )
  assert not done.stderr


@pytest.mark.parametrize(
  'clients, before, kernels, threads',
  [
    (None, {}, '1', '1'),
    (10_000, {}, '1', '1'),
    (1, {}, '1', str(len(os.sched_getaffinity(0)))),
    (None, {'TF_ENABLE_ONEDNN_OPTS': '0'}, '0', '1'),
    (None, {'TF_NUM_INTRAOP_THREADS': '7'}, '1', '7'),
  ],
)
def test_kernels_and_threads_of_clients(
  monkeypatch, clients, before, kernels, threads
):
  names = 'TF_ENABLE_ONEDNN_OPTS', 'TF_NUM_INTRAOP_THREADS'
  for name in names:
    monkeypatch.delenv(name, raising=False)
  for name, value in before.items():
    monkeypatch.setenv(name, value)
  execution_context.choose_kernels(clients)
  found = tuple(map(os.environ.get, names))
  for name in names:
    os.environ.pop(name, None)  # `monkeypatch` puts back what was there.
  assert found == (kernels, threads)
