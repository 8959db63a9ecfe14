"""States of clients: versions, repetition, resumption, pruning."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tff_ssl.templates import client_state


def task(client, round_num, seed=7):
  return SimpleNamespace(
    client=tf.constant(client),
    round=tf.constant(round_num),
    seed=tf.constant(seed),
  )


def initial():
  return {'weights': tf.zeros([2]), 'labels': tf.fill([3], -1)}


@tf.function(autograph=False)
def count_up(folder, client, round_num, seed=7, counts=True):
  """Reads, adds 1 and writes; returns what was read."""
  own = task(client, round_num, seed)
  state, found = client_state.read(folder, own, initial)
  new = tf.nest.map_structure(lambda value: value + 1, state)
  written = client_state.write(folder, own, new, tf.constant(counts))
  with tf.control_dependencies([written]):
    return tf.identity(state['weights'])[0], tf.identity(found)


@pytest.fixture
def visit(tmp_path):
  folder = str(tmp_path / 'states')

  def visit_client(client, round_num, **arguments):
    value, found = count_up(folder, client, round_num, **arguments)
    return float(value), bool(found)

  visit_client.folder = tmp_path / 'states'
  return visit_client


def test_a_client_finds_what_it_left(visit):
  assert visit(3, 0) == (0, False)
  assert visit(3, 4) == (1, True)
  assert visit(3, 5) == (2, True)
  # Others, and other runs, have their own.
  assert visit(30, 5) == (0, False)
  assert visit(3, 5, seed=8) == (0, False)


def test_a_repeated_round_reads_the_same_and_writes_the_same_bytes(visit):
  for round_num in (0, 2, 11):
    visit(3, round_num)
  files = sorted(visit.folder.rglob('*.state'))
  before = [path.read_bytes() for path in files]
  # As after a crash: later versions are there, and count for nothing.
  assert visit(3, 2) == (1, True) and visit(3, 11) == (2, True)
  assert [path.read_bytes() for path in files] == before
  assert sorted(visit.folder.rglob('*.state')) == files


def test_a_client_that_is_left_out_keeps_its_state(visit):
  visit(3, 0)
  assert visit(3, 1, counts=False) == (1, True)
  assert visit(3, 2) == (1, True)


def test_rounds_beyond_nine_and_shapes(visit):
  for expected, round_num in enumerate((8, 9, 10, 99, 100, 1000)):
    assert visit(3, round_num)[0] == expected
  own = task(3, 1001)
  state, _ = client_state.read(str(visit.folder), own, initial)
  assert state['labels'].shape == [3] and state['labels'].dtype == tf.int32
  np.testing.assert_array_equal(state['labels'], 5)


def test_pruning_leaves_what_the_oldest_checkpoint_needs(visit):
  for round_num in range(6):
    visit(3, round_num)
  client_state.prune(str(visit.folder), 7, [3, 4], round_num=4)
  left = sorted(path.name for path in visit.folder.rglob('*.state'))
  # Going on after 4 rounds, round number 4 reads the version of number 3.
  assert [int(os.path.splitext(name)[0]) for name in left] == [3, 4, 5]
  assert visit(3, 4) == (4, True)


def alike():
  """A state whose leaves cannot be told apart by type and shape."""
  return [tf.zeros([4]), tf.zeros([4]), tf.zeros([4])]


@tf.function(autograph=False)
def read_alike(folder):
  state, _ = client_state.read(folder, task(3, 1), alike)
  return state


@pytest.fixture
def stored(tmp_path):
  """The file of a state, and what reads it anew."""
  values = np.arange(12, dtype=np.float32).reshape(3, 4)
  folder = str(tmp_path)
  leaves = tf.unstack(tf.constant(values))
  client_state.write(folder, task(3, 0), leaves, tf.constant(True))
  (path,) = tmp_path.rglob('*.state')
  return path, values, lambda: np.stack(read_alike(folder))


def test_a_state_that_was_cut_or_has_a_flipped_bit_is_an_error(stored):
  path, values, read = stored
  whole = path.read_bytes()
  np.testing.assert_array_equal(read(), values)
  for length in range(len(whole)):
    path.write_bytes(whole[:length])
    with pytest.raises(tf.errors.InvalidArgumentError):
      read()
  passed = 0
  for index in range(len(whole)):
    content = bytearray(whole)
    content[index] ^= 1 << index % 8
    path.write_bytes(content)
    try:
      np.testing.assert_array_equal(read(), values)
      passed += 1
    except tf.errors.InvalidArgumentError:
      pass
  # What describes the file may change without effect, what is stored cannot.
  assert passed < 10


def test_a_damaged_state_is_named(stored):
  path, _, read = stored
  content = bytearray(path.read_bytes())
  content[content.index(np.float32(7).tobytes())] ^= 1
  path.write_bytes(content)
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=f'state {path} is damaged'
  ):
    read()


@pytest.mark.parametrize(
  'remedy, folder',
  [
    *(('absolute path', folder) for folder in ('states', None, 3)),
    # Patterns.
    *(('another folder', f'/runs/a{end}') for end in ('[1]', '*', '?', '\\b')),
  ],
)
def test_folders_that_cannot_be(remedy, folder):
  with pytest.raises(ValueError, match=f'client_state_dir=.* {remedy}'):
    client_state.check_folder(folder)
