"""Arrays in a cache: what is written comes back, or nothing does."""

import numpy as np
import pytest

from datasets.files import npz_files

ARRAYS = {'a': np.arange(6, dtype=np.uint8).reshape(2, 3), 'b': np.eye(3)}


def test_what_is_written_comes_back(tmp_path):
  path = tmp_path / 'new' / 'folder' / 'x.npz'
  written = npz_files.keep(str(path), ARRAYS)
  found = npz_files.kept(str(path))
  assert found.keys() == written.keys() == {*ARRAYS, npz_files.DIGEST}
  for name, array in written.items():
    np.testing.assert_array_equal(found[name], array)
    assert found[name].dtype == array.dtype
  assert [file.name for file in path.parent.iterdir()] == ['x.npz']


@pytest.mark.parametrize(
  'changes', [{'a': ARRAYS['a'] + 1}, {'c': ARRAYS['a']}, {'sha256': None}]
)
def test_arrays_without_their_digest_are_none(tmp_path, changes, caplog):
  path = str(tmp_path / 'x.npz')
  arrays = npz_files.keep(path, ARRAYS) | changes
  np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
  assert npz_files.kept(path) is None
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
  npz_files.keep(str(path), ARRAYS)
  sound = path.read_bytes()
  path.write_bytes(damage(sound))
  assert path.read_bytes() != sound
  assert npz_files.kept(str(path)) is None
  assert 'x.npz is damaged' in caplog.text


def test_an_absent_file_is_none_and_nothing_is_said(tmp_path, caplog):
  assert npz_files.kept(str(tmp_path / 'x.npz')) is None
  assert not caplog.text
