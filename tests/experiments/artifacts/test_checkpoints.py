"""Checkpoints: exact round trips, and no damage that goes unnoticed."""

import collections
import hashlib
import io
import itertools
import json
import logging
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tracemalloc
import zipfile
from typing import Any, NamedTuple

import attrs
import ml_dtypes
import numpy as np
import pytest
import pythons

from experiments.artifacts import checkpoints, durable_files

FINGERPRINT = {'process': 'grouping', 'seed': 7, 'shape': (2, 3)}


@attrs.define
class State:
  weights: Any
  optimizer: Any


class Pair(NamedTuple):
  first: Any
  second: Any


def make_state(seed):
  rng = np.random.default_rng(seed)
  bits = rng.integers(0, 2**32, [4, 3], np.uint32)
  return State(
    weights=collections.OrderedDict(
      z=bits.view(np.float32),  # any bit pattern, NaN with payload among them
      a=[np.float64(-0.0), rng.integers(0, 2**16, 5, np.uint16)],
      half=bits.astype(np.uint16).view(ml_dtypes.bfloat16),
    ),
    optimizer=Pair(
      first=(np.array([True, False]), (), np.int64(2**62 + seed)),
      second={'step': seed, 'rate': 0.1, 'on': True},
    ),
  )


def flat_bits(state):
  """The state by hand, without the library that the manager flattens with."""
  weights, (arrays, numbers) = state.weights, state.optimizer
  leaves = [weights['z'], *weights['a'], weights['half'], *arrays[::2]]
  leaves += [numbers[name] for name in ('step', 'rate', 'on')]
  return [
    (type(leaf), np.asarray(leaf).dtype, np.asarray(leaf).tobytes())
    for leaf in leaves
  ]


def manager(folder, keep=2, fingerprint=FINGERPRINT):
  state = make_state(0)
  return checkpoints.CheckpointManager(folder, state, fingerprint, keep)


def saved(folder, *numbers, **options):
  """Saves the state `make_state(number)` as each of some rounds."""
  saver = manager(folder, **options)
  for number in numbers:
    saver.save(number, make_state(number))
  return saver


def test_a_damaged_checkpoint_may_be_dropped_before_the_next_save(tmp_path):
  saved(tmp_path, 1, 2)
  damaged = tmp_path / 'round_00000002' / 'state.npz'
  damaged.write_bytes(damaged.read_bytes()[:-1])
  again = manager(tmp_path)
  assert again.load_latest()[0] == 1
  again.drop_after(1)
  again.save(2, make_state(2))
  assert_latest(tmp_path, 2)


def assert_latest(folder, round_number, seed=None):
  """Asserts that the round is loaded, and its state is that of the seed."""
  loader = manager(folder)
  found, state, _ = loader.load_latest()
  assert found == round_number
  seed = round_number if seed is None else seed
  assert flat_bits(state) == flat_bits(make_state(seed))
  return loader


def rounds_in(folder):
  # One that was saved anew has a longer name.
  return [int(name[6:14]) for name in sorted(os.listdir(folder))]


def test_round_trip_is_bit_exact(tmp_path):
  state = make_state(5)
  state.weights['z'][0, 0] = np.uint32(0x7FC12345).view(np.float32)
  manager(tmp_path).save(12, state)
  round_number, loaded, _ = manager(tmp_path).load_latest()
  assert round_number == 12
  assert isinstance(loaded, State) and isinstance(loaded.optimizer, Pair)
  assert list(loaded.weights) == ['z', 'a', 'half']
  assert loaded.optimizer.first[1] == ()
  assert flat_bits(loaded) == flat_bits(state)


def test_round_trip_of_tensors(tmp_path):
  tf = pytest.importorskip('tensorflow')
  state = {'w': tf.constant([[1.5, -2]]), 'b': tf.constant([1], tf.bfloat16)}
  manager = checkpoints.CheckpointManager(tmp_path, state, {})
  manager.save(1, state)
  _, loaded, _ = manager.load_latest()
  np.testing.assert_array_equal(loaded['w'], [[1.5, -2]])
  assert loaded['b'].dtype == tf.bfloat16.as_numpy_dtype


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
  """All its files are, and then the folder in which it is renamed."""
  synced, fsync, rename = [], os.fsync, pathlib.Path.rename

  def recording_fsync(descriptor):
    name = pathlib.Path(os.readlink(f'/proc/self/fd/{descriptor}')).name
    synced.append(name.removeprefix(durable_files.TEMPORARY_PREFIX))
    fsync(descriptor)

  def recording_rename(path, target):
    files = os.listdir(path)
    assert files and set(files) <= set(synced)
    synced.clear()
    return rename(path, target)

  monkeypatch.setattr(os, 'fsync', recording_fsync)
  monkeypatch.setattr(pathlib.Path, 'rename', recording_rename)
  saved(tmp_path, 1)
  assert synced == [tmp_path.name]


def test_no_checkpoint_is_none(tmp_path):
  assert manager(tmp_path / 'new').load_latest() is None


def test_keeps_the_newest_two(tmp_path):
  saved(tmp_path, 1, 2, 10)
  assert sorted(os.listdir(tmp_path)) == ['round_00000002', 'round_00000010']
  assert_latest(tmp_path, 10)


def test_keeps_a_pinned_one_until_another_is_pinned(tmp_path):
  saver = saved(tmp_path, 1, 2)
  saver.pinned = 2
  for number in (3, 4, 5):
    saver.save(number, make_state(number))
  assert rounds_in(tmp_path) == [2, 4, 5]
  saver.pinned = 5
  for number in (6, 7):
    saver.save(number, make_state(number))
  assert rounds_in(tmp_path) == [5, 6, 7]


def test_later_ones_are_dropped_and_a_round_begins_again(tmp_path):
  saver = manager(tmp_path, keep=4)
  for number in (1, 2, 3, 4):
    saver.save(number, make_state(number), files={'note': b'%d' % number})
  saver.drop_after(2)
  round_number, loaded, files = saver.load_latest()
  assert round_number == 2
  assert flat_bits(loaded) == flat_bits(make_state(2))
  assert files == {'note': b'2'}
  saver.save(2, make_state(2), files={'note': b'again'})
  saver.save(3, make_state(9))
  again = manager(tmp_path, keep=4)
  _, loaded, files = again.load_latest()
  assert flat_bits(loaded) == flat_bits(make_state(9)) and not files
  again.drop_after(2)
  assert again.load_latest()[2] == {'note': b'again'}
  again.drop_after(0)
  assert again.load_latest() is None and not os.listdir(tmp_path)


def test_same_round_again_replaces_it(tmp_path):
  saver = manager(tmp_path)
  for content in (1, 2, 3, 4):
    saver.save(3, make_state(content))
    assert_latest(tmp_path, 3, content)
    assert rounds_in(tmp_path) == [3]


def test_whether_a_round_can_be_loaded(tmp_path):
  saver = saved(tmp_path, 3)
  assert saver.is_sound(3) and not saver.is_sound(4)
  (tmp_path / 'round_00000003' / 'state.npz').write_bytes(b'damaged')
  assert not saver.is_sound(3)


def test_earlier_round_is_refused(tmp_path):
  saver = saved(tmp_path, 3)
  with pytest.raises(ValueError, match='round=2 .* round 3'):
    saver.save(2, make_state(1))


def test_manifest_names_round_fingerprint_and_hashes(tmp_path):
  saved(tmp_path, 4)
  folder = tmp_path / 'round_00000004'
  manifest = json.loads((folder / 'manifest.json').read_text())
  assert manifest['round'] == 4
  assert manifest['fingerprint'] == {**FINGERPRINT, 'shape': [2, 3]}
  assert manifest['files'] == {'state.npz': sha256(folder / 'state.npz')}


def sha256(path):
  return hashlib.sha256(path.read_bytes()).hexdigest()


def test_other_settings_are_shown_as_a_table(tmp_path):
  saved(tmp_path, 1)
  other = {'process': 'grouping', 'seed': 8, 'shape': (2, 3), 'groups': 5}
  with pytest.raises(checkpoints.FingerprintMismatch) as caught:
    manager(tmp_path, fingerprint=other).load_latest()
  table = [line.split() for line in str(caught.value).split('\n')[1:]]
  assert table == [
    ['name', 'stored', 'now'],
    ['groups', '(absent)', '5'],
    ['seed', '7', '8'],
  ]


def test_other_structure_is_refused(tmp_path):
  saved(tmp_path, 1)
  template = make_state(0)
  template.weights['z'] = np.zeros([4, 4], np.float32)
  other = checkpoints.CheckpointManager(tmp_path, template, FINGERPRINT)
  with pytest.raises(ValueError, match=r'weights/z.*\[4, 3\].*\[4, 4\]'):
    other.load_latest()
  with pytest.raises(ValueError, match='1 arrays and this process'):
    other.save(2, np.zeros(3))


def test_a_state_of_differential_privacy_names_its_mechanism(tmp_path):
  state = {'class_name': b'GaussianDpEvent', 'noise_multiplier': 0.5}
  manager = checkpoints.CheckpointManager(tmp_path, state, {})
  manager.save(1, state)
  assert manager.load_latest() == (1, state, {})


@pytest.mark.parametrize('leaf', [None, 'text', object(), [2**70]])
def test_what_is_no_number_is_refused(tmp_path, leaf):
  with pytest.raises(TypeError, match='at x'):
    checkpoints.CheckpointManager(tmp_path, {'x': leaf}, {})


def mutate(rng, older, newer):
  """Damages the checkpoint `newer` in a way that `rng` draws."""
  name = rng.choice(['state.npz', 'manifest.json'])
  content = (newer / name).read_bytes()
  at, bit = rng.randrange(len(content)), 1 << rng.randrange(8)
  damaged = {
    'flip': content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :],
    'truncate': content[:at],
    'empty': b'',
    'zeros': bytes(len(content)),
    'add': content + b'\0',
    'swap': (older / name).read_bytes(),
  }
  kind = rng.choice([*damaged, 'missing', 'no files'])
  if kind in damaged:
    (newer / name).write_bytes(damaged[kind])
  for path in newer.iterdir():
    if kind == 'no files' or (kind == 'missing' and path.name == name):
      path.unlink()
  return f'{kind} {name}'


def test_r4_no_damage_gives_a_wrong_state(tmp_path, caplog):
  sound = tmp_path / 'sound'
  saved(sound, 1, 2)
  expected = {1: flat_bits(make_state(1)), 2: flat_bits(make_state(2))}
  rng = random.Random(0)
  fallbacks = 0
  for case in range(200):
    damaged = tmp_path / str(case)
    shutil.copytree(sound, damaged)
    what = mutate(rng, *sorted(damaged.iterdir()))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
      round_number, state, _ = manager(damaged).load_latest()
    assert flat_bits(state) == expected[round_number], what
    if round_number == 1:
      fallbacks += 1
      assert 'continuing from round 1' in caplog.text, what
    shutil.rmtree(damaged)
  # Only white space of the manifest can change without effect.
  assert fallbacks >= 180


def test_swapped_rounds_are_not_believed(tmp_path):
  saved(tmp_path, 1, 2)
  one, two = sorted(tmp_path.iterdir())
  one.rename(tmp_path / 'aside')
  two.rename(one)
  (tmp_path / 'aside').rename(two)
  with pytest.raises(checkpoints.CheckpointError, match='of another round'):
    manager(tmp_path).load_latest()


def test_none_sound_never_starts_afresh(tmp_path):
  saved(tmp_path, 1)
  (tmp_path / 'round_00000001' / 'state.npz').write_bytes(b'')
  with pytest.raises(checkpoints.CheckpointError, match='No checkpoint .*'):
    manager(tmp_path).load_latest()


def reseal(folder, change=lambda manifest: None):
  """Changes a manifest, whose own SHA-256 is right again."""
  manifest = json.loads((folder / 'manifest.json').read_text())
  del manifest['sha256']
  manifest['files']['state.npz'] = sha256(folder / 'state.npz')
  change(manifest)
  text = json.dumps(manifest, sort_keys=True)
  manifest['sha256'] = hashlib.sha256(text.encode()).hexdigest()
  (folder / 'manifest.json').write_text(json.dumps(manifest))


class Canary:
  """An array of it, once unpickled, makes a file."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (str(self.path),)


def put_pickle(folder):
  canary = np.array([Canary(folder.parent.parent / 'canary')], object)
  np.savez(folder / 'state.npz', leaf_00000=canary)
  reseal(folder)


def put_other_arrays(folder):
  np.savez(folder / 'state.npz', leaf_00000=np.zeros(3))
  reseal(folder)


def put_other(change):
  """Changes the arrays, but not the names that say what they are."""

  def put(folder):
    with np.load(folder / 'state.npz') as arrays:
      changed = {name: change(array) for name, array in arrays.items()}
    np.savez(folder / 'state.npz', **changed)
    reseal(folder)

  return put


def put_no_archive(folder):
  (folder / 'state.npz').write_bytes(b'PK\3\4 and no more')
  reseal(folder)


def put_deep_nesting(folder):
  (folder / 'manifest.json').write_text('[' * 100_000 + ']' * 100_000)


def put_nothing(folder):
  (folder / 'state.npz').unlink()


def put_file(folder):
  shutil.rmtree(folder)
  folder.write_bytes(b'a file')


def put_link(folder):
  put_nothing(folder)
  elsewhere = folder.rename(folder.parent.parent / 'elsewhere')
  folder.symlink_to(elsewhere)


def put_without(name):
  return lambda folder: reseal(folder, lambda manifest: manifest.pop(name))


def put_value(**changes):
  return lambda folder: reseal(
    folder, lambda manifest: manifest.update(changes)
  )


@pytest.mark.parametrize(
  'put, fault',
  [
    (put_pickle, 'state.npz cannot be read'),
    (put_other_arrays, 'state.npz holds other arrays'),
    (put_other(np.ravel), 'state.npz holds other arrays'),
    (put_other(lambda a: a.astype('S9')), 'state.npz holds other arrays'),
    (put_no_archive, 'state.npz cannot be read'),
    (put_deep_nesting, 'manifest cannot be read'),
    (put_nothing, 'No such file'),
    (put_file, 'Not a directory'),
    (put_link, 'No such file'),
    *(
      (put_without(name), f"manifest has no '{name}'")
      for name in ('format', 'round', 'fingerprint', 'files')
    ),
    (put_value(files=['state.npz']), "no 'files'"),
    (put_value(files={}), 'state.npz cannot be read'),
    (put_value(files=3), "no 'files'"),
  ],
)
def test_s3_what_is_no_checkpoint_is_passed_over(tmp_path, caplog, put, fault):
  folder = tmp_path / 'checkpoints'
  saved(folder, 1, 2)
  put(folder / 'round_00000002')
  again = assert_latest(folder, 1)
  assert fault in caplog.text
  assert not (tmp_path / 'canary').exists()
  # The repeated round takes its place, whatever that was.
  again.save(2, make_state(2))
  assert_latest(folder, 2)
  assert rounds_in(folder) == [1, 2]


def test_a_resealed_checkpoint_is_sound(tmp_path):
  """Otherwise the cases above would show nothing."""
  saved(tmp_path, 1)
  reseal(tmp_path / 'round_00000001')
  assert_latest(tmp_path, 1)


class Interrupted(BaseException):
  """Stands for a SIGKILL: nothing may run after it."""


SYSTEM_CALLS = [
  *('open', 'write', 'fsync', 'replace', 'rename', 'mkdir', 'rmdir'),
  'unlink',
]
FULL = OSError(28, 'No space left on device')


@pytest.mark.parametrize('error', [FULL, Interrupted()])
def test_r3_failure_at_every_system_call(tmp_path, failing_calls, error):
  fatal_call, finished = 0, False
  while not finished:
    fatal_call += 1
    folder = tmp_path / f'run{fatal_call}'
    saver = saved(folder, 1, 2)
    with failing_calls(SYSTEM_CALLS, error, fatal_call) as calls:
      try:
        saver.save(3, make_state(3))
        finished = True
      except (checkpoints.CheckpointError, Interrupted) as caught:
        if isinstance(error, OSError):
          text = str(caught)
          assert 'No space left' in text and str(folder) in text
          if 'cannot be removed' in text:  # An old one; the new one is there.
            assert 'newest one is written' in text
            assert (folder / 'round_00000003').exists()
          else:
            assert 'untouched' in text and 'bytes' in text
    assert finished == (len(calls) < fatal_call)
    # The next start goes on, with one of the two, and to the same end.
    again = manager(folder)
    round_number, state, _ = again.load_latest()
    assert round_number in (2, 3)
    assert flat_bits(state) == flat_bits(make_state(round_number))
    again.save(3, make_state(3))
    assert_latest(folder, 3)
    assert rounds_in(folder) == [2, 3]
  assert fatal_call > 15


FULL_DISK = """
import itertools, subprocess, sys
import numpy as np
from experiments.artifacts import checkpoints

folder = sys.argv[1]
state = {'x': np.arange(10_000.0)}

def mount(options, *more):
  subprocess.run(['mount', '-o', options, *more, folder], check=True)

def open_anew():
  return checkpoints.CheckpointManager(folder, state, {}, keep=100)

def first_error(number):
  for number in itertools.count(number):
    try:
      manager.save(number, state)
    except checkpoints.CheckpointError as error:
      return number, str(error)

mount('size=512k', '-t', 'tmpfs', 'none')
manager = open_anew()
full, said = first_error(1)
print(full, 'No space left on device' in said and folder in said)
mount('remount,ro')
print(first_error(full)[0], 'Read-only' in first_error(full)[1])
mount('remount,rw,size=1m')
manager = open_anew()
print(manager.load_latest()[0])
manager.save(full, state)
print(open_anew().load_latest()[0])
"""


def test_r3_a_real_disk_that_is_full_and_then_read_only(tmp_path):
  own = ('unshare', '--user', '--map-root-user', '--mount')
  if not shutil.which('unshare') or subprocess.run([*own, 'true']).returncode:
    pytest.skip('R3 on a disk of its own needs namespaces: unshare -rm')
  done = subprocess.run(
    [*own, sys.executable, '-c', FULL_DISK, str(tmp_path)],
    cwd=pythons.ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  full, *found = done.stdout.split()
  assert int(full) > 2
  assert found == ['True', full, 'True', str(int(full) - 1), full]


ARRAYS = {'b': np.arange(6.0).reshape(2, 3), 'a': np.zeros(0, np.int32)}


def archived(save=np.savez, **arrays):
  buffer = io.BytesIO()
  save(buffer, **arrays)
  return buffer.getvalue()


def with_header(shape):
  """An array of three bytes whose header declares this shape."""
  array = io.BytesIO()
  header = np.lib.format.header_data_from_array_1_0(np.zeros(3, np.uint8))
  np.lib.format.write_array_header_1_0(array, {**header, 'shape': shape})
  array.write(b'abc')
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, 'w') as archive:
    archive.writestr('a.npy', array.getvalue())
  return buffer.getvalue()


def with_forged_size():
  """An archive whose directory says that its array has a gigabyte."""
  content = bytearray(archived(a=np.zeros(3)))
  place = content.index(b'PK\x01\x02')
  content[place + 24 : place + 28] = (10**9).to_bytes(4, 'little')
  return bytes(content)


def test_arrays_come_back_by_name():
  read = checkpoints.unpack_arrays(archived(**ARRAYS))
  assert list(read) == ['a', 'b']
  for name, array in ARRAYS.items():
    np.testing.assert_array_equal(read[name], array)
    assert read[name].dtype == array.dtype
  assert checkpoints.unpack_arrays(with_header((3,)))['a'].tobytes() == b'abc'


@pytest.mark.parametrize(
  'content',
  [
    *(b'', b'PK', b'no zip at all', archived(**ARRAYS)[:-30]),
    archived(a=np.array([None])),
    with_header((10**9,)),
    with_header((2,)),
    with_forged_size(),
    # A thousand times as large as the file.
    archived(np.savez_compressed, a=np.zeros(10**8, np.uint8)),
  ],
  # A zip file holds the time.
  ids=itertools.count(),
)
def test_other_bytes_are_refused_without_memory_for_them(content):
  tracemalloc.start()
  try:
    with pytest.raises(ValueError, match='no file of np.savez'):
      checkpoints.unpack_arrays(content)
    assert tracemalloc.get_traced_memory()[1] < 10**7
  finally:
    tracemalloc.stop()
