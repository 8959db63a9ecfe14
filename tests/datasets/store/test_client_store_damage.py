"""Damaged, half-written and contested files of the packed store."""

import dataclasses
import logging
import os
import pathlib
import shutil

import numpy as np
import pytest
import pythons
import stores
import tensorflow as tf

from datasets.store import client_store


def _mutations(content):
  rng = np.random.default_rng(1)
  yield b''
  yield b'x'
  yield content + b'x'
  yield b'PK\x03\x04' + bytes(5000)
  yield bytes(len(content))
  yield content[: len(content) // 2] * 2
  whole = len(content)
  for length in (7, 100, whole // 2, whole - 33, whole - 1):
    yield content[:length]
  for at in rng.integers(len(content), size=15):
    yield _flip(content, at)
  for at in range(1, 90, 4):  # The checksum, and labels of the server.
    yield _flip(content, len(content) - at)


def _flip(content, at):
  flipped = bytearray(content)
  flipped[at] ^= 1 << (at % 8)
  return bytes(flipped)


def test_b5_damage_is_found_and_repaired(build, store, tmp_path):
  content = pathlib.Path(store.path).read_bytes()
  path = tmp_path / os.path.basename(store.path)
  ours = dataclasses.replace(store, path=str(path))
  mutations = list(_mutations(content))
  assert len(mutations) > 30
  for mutation in mutations:
    assert mutation != content
    path.write_bytes(mutation)
    assert not ours.is_sound()
  for mutation in mutations[::6]:
    path.write_bytes(mutation)
    assert build().path == str(path)
    assert path.read_bytes() == content
  assert ours.is_sound()


def test_rebuilding_warns(build, store, tmp_path, caplog):
  path = tmp_path / os.path.basename(store.path)
  path.write_bytes(b'not ours')
  with caplog.at_level(logging.WARNING, logger='absl'):
    build()
  assert any(str(path) in message for message in caplog.messages)


def test_another_store_under_our_name_is_rebuilt(build, store, tmp_path):
  other = build('clients')
  path = tmp_path / os.path.basename(store.path)
  shutil.copy(other.path, path)
  assert other.file_size == store.file_size
  copied = dataclasses.replace(other, path=str(path))
  assert (stores.read(copied, 0).y >= 0).all()
  assert (stores.read(build(), 0).y == -1).all()


def test_b5_damage_after_opening_is_an_error(build):
  store = build()
  read = tf.function(
    lambda i: client_store.client_dataset(store, i).get_single_element()
  )
  content = pathlib.Path(store.path).read_bytes()
  start = int(store.record_starts[6])
  for at in (start, start + 9, start + 20, int(store.record_starts[7]) - 1):
    pathlib.Path(store.path).write_bytes(_flip(content, at))
    with pytest.raises(tf.errors.DataLossError):
      read(tf.constant(6))
  for length in (0, start, start + 5, start + 100):
    pathlib.Path(store.path).write_bytes(content[:length])
    with pytest.raises(tf.errors.OpError):
      read(tf.constant(6))
  assert not store.is_sound()
  os.remove(store.path)
  with pytest.raises(tf.errors.NotFoundError):
    read(tf.constant(6))


def test_leftovers_of_dead_builders_are_removed(build, tmp_path):
  dead = tmp_path / f'clients-{"a" * 40}.store.123.tmp'
  foreign = tmp_path / 'clients-notes.tmp'
  dead.write_bytes(b'half')
  foreign.write_bytes(b'not ours')
  store = build()
  assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
    [os.path.basename(store.path), 'client_stores.lock', foreign.name]
  )


_BUILDERS = """
import glob, os, signal, sys, time, traceback
import numpy as np
from datasets.store import client_store
from datasets.partition import partitions
from datasets.sources.source import Source, Split
cache = sys.argv[1]
images = np.random.default_rng(0).integers(
  0, 256, (20000, 16, 16, 1), dtype=np.uint8)
split = Split(images, (np.arange(20000) % 10).astype(np.int32))
source = Source('random', '1', '', split, split, 10, (.5,), (.5,), 0, False)
held = partitions.build(
  'r', source, num_clients=100, noniid_r=0.3, server_examples=100, seed=1)
write = client_store._write

def write_and_say(*arguments):
  print('wrote', flush=True)
  write(*arguments)

def build():
  store = client_store.build(
    source, held, cache_dir=cache, labelled='server')
  for client in range(100):
    read = client_store.client_dataset(store, client).get_single_element()
    expected = images[held.client_indices(client)]
    assert (read['x'].numpy() == expected).all()

def fork(fsync, write):
  child = os.fork()
  if child:
    return child
  os.fsync, client_store._write = fsync, write
  try:
    build()
  except BaseException:
    traceback.print_exc()
    os._exit(1)
  os._exit(0)

killed = fork(lambda _: time.sleep(100), write)
while not glob.glob(os.path.join(cache, '*.tmp')):
  time.sleep(0.001)
builders = [fork(os.fsync, write_and_say) for _ in range(3)]
time.sleep(0.2)
os.kill(killed, signal.SIGKILL)
for builder in builders:
  print('exit', os.waitstatus_to_exitcode(os.waitpid(builder, 0)[1]))
"""


@pytest.mark.parts
def test_b5_builders_at_once_and_a_killed_one(tmp_path):
  # One process that forks, since each import of TensorFlow takes seconds.
  said = pythons.run('-c', _BUILDERS, tmp_path)
  assert said.stdout.splitlines() == ['wrote', *['exit 0'] * 3], said.stderr
  suffixes = sorted(path.suffix for path in tmp_path.iterdir())
  assert suffixes == ['.lock', '.store']


def test_a_full_disk_is_named(build, tmp_path, monkeypatch):
  usage = shutil.disk_usage(tmp_path)._replace(free=1000)
  monkeypatch.setattr(shutil, 'disk_usage', lambda _: usage)
  with pytest.raises(OSError, match=r'needs 0\.\d MiB and 0\.0 MiB are free'):
    build()
  assert [path.name for path in tmp_path.iterdir()] == ['client_stores.lock']


def test_a_failed_write_leaves_nothing(build, tmp_path, failing_calls):
  with (
    pytest.raises(OSError, match='No space left'),
    failing_calls(['fsync'], OSError(28, 'No space left on device'), 1),
  ):
    build()
  assert [path.name for path in tmp_path.iterdir()] == ['client_stores.lock']
