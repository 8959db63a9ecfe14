"""Servers that answer, refuse, or never say a word; all on this machine."""

import contextlib
import functools
import http.server
import socket
import threading
import time

import pytest

from datasets.files import downloads
from datasets.sources import catalogue

REMEDY = 'give --data_dir'


def check(*urls, seconds=5.0, **more):
  downloads.check_reachable(urls, 'mnist', REMEDY, seconds, **more)


def move_tfds(monkeypatch, folder):
  """Lets TFDS look for its sets in a folder."""
  import tensorflow_datasets as tfds

  builder = functools.partial(tfds.builder, data_dir=folder)
  monkeypatch.setattr(tfds, 'builder', builder)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
  for name in ('http_proxy', 'https_proxy', 'all_proxy'):
    monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(name.upper(), raising=False)


@contextlib.contextmanager
def listening():
  """A port to which one can connect, and where nobody answers."""
  with socket.create_server(('127.0.0.1', 0)) as server:
    yield f'127.0.0.1:{server.getsockname()[1]}'


@contextlib.contextmanager
def serving(status):
  class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
      self.send_response(status)
      self.end_headers()

    def log_message(self, *unused):
      pass

  with http.server.HTTPServer(('127.0.0.1', 0), Handler) as server:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
      yield f'127.0.0.1:{server.server_port}'
    finally:
      server.shutdown()
      thread.join()


@pytest.mark.parametrize('status', [200, 404, 405, 503])
def test_any_answer_is_one(status):
  with serving(status) as server:
    check(f'http://{server}/a.gz')


def test_a_closed_port_is_told_at_once():
  with listening() as server:
    pass
  began = time.monotonic()
  with pytest.raises(ValueError, match='refused') as caught:
    check(f'http://{server}/a.gz')
  assert time.monotonic() - began < 4
  message = str(caught.value)
  assert message.startswith("dataset='mnist' must be downloaded")
  assert server in message and message.endswith(f'{REMEDY}.')


@pytest.mark.parametrize('scheme', ['http', 'https'])
def test_a_server_that_says_nothing_is_given_up(scheme):
  began = time.monotonic()
  with (
    listening() as server,
    pytest.raises(ValueError, match='timed out|no answer in 0.3 seconds'),
  ):
    check(f'{scheme}://{server}/a.gz', seconds=0.3)
  assert time.monotonic() - began < 4


def test_a_name_that_is_never_found_is_given_up(monkeypatch):
  given_up = threading.Event()

  def look_up(*unused, **more):
    given_up.wait(60)
    raise OSError('the test is over')

  monkeypatch.setattr(socket, 'getaddrinfo', look_up)
  began = time.monotonic()
  with pytest.raises(ValueError, match='no answer in 0.2 seconds'):
    check('http://nowhere.invalid/a.gz', seconds=0.2)
  assert time.monotonic() - began < 4
  given_up.set()


def test_one_of_two_servers_is_missing():
  with serving(200) as server, listening() as silent:
    urls = [f'http://{server}/a', f'http://{silent}/b']
    with pytest.raises(ValueError, match=silent):
      check(*urls, seconds=0.3)


def test_a_mirror_is_enough():
  with serving(200) as mirror, listening() as silent:
    check(f'http://{silent}/a', seconds=0.3, mirror=f'http://{mirror}')
  with pytest.raises(ValueError, match=silent):
    check(f'http://{silent}/a', seconds=0.3, mirror=f'http://{mirror}')


def test_archives_that_are_there_need_no_network(monkeypatch, tmp_path):
  def ask(*unused, **unused_too):
    raise AssertionError('The network is asked.')

  monkeypatch.setattr(downloads, 'check_reachable', ask)
  move_tfds(monkeypatch, tmp_path)
  for name in ('mnist', 'emnist_balanced'):
    with pytest.raises(AssertionError, match='is asked'):
      catalogue.check_files(name, data_dir=None)
  (tmp_path / 'downloads').mkdir()
  (tmp_path / 'downloads' / 'archive.gz').write_bytes(b'1')
  for name in ('mnist', 'emnist_balanced'):
    catalogue.check_files(name, data_dir=None)


@pytest.mark.parametrize('name', ['emnist', 'mnist', 'emnist_balanced'])
def test_without_network_a_data_set_asks_for_data_dir(
  name, monkeypatch, tmp_path
):
  """Through a proxy that is not there, and with nothing on the disk."""
  with listening() as server:
    pass
  for scheme in ('http_proxy', 'https_proxy'):
    monkeypatch.setenv(scheme, f'http://{server}')
  monkeypatch.delenv('no_proxy', raising=False)
  monkeypatch.setenv('HOME', str(tmp_path))
  move_tfds(monkeypatch, tmp_path / 'tfds')
  for ask in (
    lambda: catalogue.check_files(name, data_dir=None),
    lambda: catalogue.load(name, data_dir=None, cache_dir=str(tmp_path)),
  ):
    with pytest.raises(ValueError, match='give --data_dir, a folder that'):
      ask()
