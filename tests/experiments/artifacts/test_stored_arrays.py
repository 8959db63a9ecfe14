"""Arrays are read where `np.savez` wrote them, and else refused at once."""

import io
import itertools
import tracemalloc
import zipfile

import numpy as np
import pytest

from experiments.artifacts import stored_arrays

ARRAYS = {'b': np.arange(6.0).reshape(2, 3), 'a': np.zeros(0, np.int32)}


def saved(save=np.savez, **arrays):
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
  content = bytearray(saved(a=np.zeros(3)))
  place = content.index(b'PK\x01\x02')
  content[place + 24 : place + 28] = (10**9).to_bytes(4, 'little')
  return bytes(content)


def test_arrays_come_back_by_name():
  read = stored_arrays.read(saved(**ARRAYS))
  assert list(read) == ['a', 'b']
  for name, array in ARRAYS.items():
    np.testing.assert_array_equal(read[name], array)
    assert read[name].dtype == array.dtype
  assert stored_arrays.read(with_header((3,)))['a'].tobytes() == b'abc'


@pytest.mark.parametrize(
  'content',
  [
    *(b'', b'PK', b'no zip at all', saved(**ARRAYS)[:-30]),
    saved(a=np.array([None])),
    with_header((10**9,)),
    with_header((2,)),
    with_forged_size(),
    # A thousand times as large as the file.
    saved(np.savez_compressed, a=np.zeros(10**8, np.uint8)),
  ],
  # A zip file holds the time.
  ids=itertools.count(),
)
def test_other_bytes_are_refused_without_memory_for_them(content):
  tracemalloc.start()
  try:
    with pytest.raises(ValueError, match='no file of np.savez'):
      stored_arrays.read(content)
    assert tracemalloc.get_traced_memory()[1] < 10**7
  finally:
    tracemalloc.stop()
