"""Files between machines: here, folders that are emptied in between."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.simulation import ray_worker, travelling_files


class ObjectStore:
  """Keeps what is put, as Ray's does."""

  def __init__(self):
    self.kept = []

  def put(self, value):
    self.kept.append(value)
    return len(self.kept) - 1

  def get(self, reference):
    return self.kept[reference]


@pytest.fixture
def offer(tmp_path, monkeypatch):
  monkeypatch.setattr(travelling_files, '_PIECE_BYTES', 4)
  path = tmp_path / 'cache' / 'store'
  path.parent.mkdir()
  path.write_bytes(b'ten bytes.')
  store = ObjectStore()
  made = travelling_files.Offer.of(str(path), store.put)
  assert store.kept == [b'ten ', b'byte', b's.']
  return made, store, path


def test_a_file_is_fetched_once(offer):
  made, store, path = offer
  shutil.rmtree(path.parent)
  made.fetch(store.get)
  assert path.read_bytes() == b'ten bytes.'
  before = path.stat().st_mtime_ns
  made.fetch(None)  # Nothing is asked for.
  assert path.stat().st_mtime_ns == before
  path.write_bytes(b'something else')
  made.fetch(store.get)
  assert path.read_bytes() == b'ten bytes.'


def test_a_fetch_that_fails_leaves_nothing_in_its_place(offer):
  made, _, path = offer
  path.unlink()

  def lose(reference):
    raise RuntimeError('the node is gone')

  with pytest.raises(RuntimeError, match='node is gone'):
    made.fetch(lose)
  assert os.listdir(path.parent) == ['store.fetched']


def test_folders_become_equal_and_tell_what_is_new(tmp_path):
  full, none = str(tmp_path / 'full'), str(tmp_path / 'none')
  travelling_files.write({full: {'a': b'1', 'b': b'2'}})
  contents = travelling_files.read([full, none])
  assert contents == {full: {'a': b'1', 'b': b'2'}, none: {}}
  travelling_files.write({full: {'a': b'old', 'left': b'over'}})
  travelling_files.make_equal(contents)
  assert travelling_files.read([full]) == {full: contents[full]}
  assert travelling_files.changes(contents) == {full: {}, none: {}}
  travelling_files.write({full: {'c': b'3'}, none: {'d': b'4'}})
  new = travelling_files.changes(contents)
  assert new == {full: {'c': b'3'}, none: {'d': b'4'}}


@pytest.fixture
def worker():
  """A process of a cluster, which is this one; afterwards it has all cores."""
  cores = os.sched_getaffinity(0)
  yield ray_worker.RayWorker(ray_worker.Equipment())
  os.sched_setaffinity(0, cores)


def test_r8_a_client_keeps_its_state_on_whichever_machine(worker, tmp_path):
  """Each call meets a machine without a file, as one that is new."""
  folder = str(tmp_path / 'states' / 'client')
  path = os.path.join(folder, 'sum')

  @tff.tensorflow.computation(np.int32)
  def add(number):
    found = tf.io.matching_files(path)
    old = tf.cond(
      tf.size(found) > 0,
      lambda: tf.strings.to_number(tf.io.read_file(path), tf.int32),
      lambda: 0,
    )
    write = tf.io.write_file(path, tf.strings.as_string(old + number))
    with tf.control_dependencies([write]):
      return old + number

  worker._computations['add'] = add
  contents = {folder: {}}
  for number, total in ((1, 1), (5, 6), (4, 10)):
    result, new = worker.compute(
      'add', [], {}, {ray_worker.WHOLE: number}, contents
    )
    assert result == total
    contents[folder].update(new[folder])
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_made_here(worker, tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(
    RuntimeError, match='cannot write .*file/states .*: choose'
  ):
    worker.compute('', [], {}, {}, {str(tmp_path / 'file/states'): {'a': b''}})
