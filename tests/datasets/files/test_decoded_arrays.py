"""Arrays in a cache: what is written comes back, or nothing does."""

import numpy as np
import pytest

from datasets.files import decoded_arrays

ARRAYS = {'a': np.arange(6, dtype=np.uint8).reshape(2, 3), 'b': np.eye(3)}


def test_what_is_written_comes_back(tmp_path):
  path = tmp_path / 'new' / 'folder' / 'x.npz'
  written = decoded_arrays.write(str(path), ARRAYS)
  found = decoded_arrays.read(str(path))
  assert found.keys() == written.keys() == {*ARRAYS, decoded_arrays.DIGEST}
  for name, array in written.items():
    np.testing.assert_array_equal(found[name], array)
    assert found[name].dtype == array.dtype
  assert [file.name for file in path.parent.iterdir()] == ['x.npz']


@pytest.mark.parametrize(
  'changes', [{'a': ARRAYS['a'] + 1}, {'c': ARRAYS['a']}, {'sha256': None}]
)
def test_arrays_without_their_digest_are_none(tmp_path, changes, caplog):
  path = str(tmp_path / 'x.npz')
  arrays = decoded_arrays.write(path, ARRAYS) | changes
  np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
  assert decoded_arrays.read(path) is None
  assert 'x.npz is damaged; it is decoded anew' in caplog.text


@pytest.mark.parametrize(
  'damage',
  [
    lambda data: b'',
    lambda data: b'garbage',
    lambda data: data[: len(data) // 2],
    lambda data: data.replace(ARRAYS['a'].tobytes(), b'\xff' * 6),
  ],
)
def test_damaged_bytes_are_none(tmp_path, damage, caplog):
  path = tmp_path / 'x.npz'
  decoded_arrays.write(str(path), ARRAYS)
  sound = path.read_bytes()
  path.write_bytes(damage(sound))
  assert path.read_bytes() != sound
  assert decoded_arrays.read(str(path)) is None
  assert 'x.npz is damaged' in caplog.text


def test_an_absent_file_is_none_and_nothing_is_said(tmp_path, caplog):
  assert decoded_arrays.read(str(tmp_path / 'x.npz')) is None
  assert not caplog.text
