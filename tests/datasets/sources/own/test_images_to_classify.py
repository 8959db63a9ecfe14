"""Images of a user's files, and what is refused of them."""

import os

import numpy as np
import pytest
from PIL import Image

from datasets.sources import catalogue

GREY, COLOUR = (4, 5, 1), (4, 5, 3)


def read(path, shape):
  images, _ = catalogue.decode(path, shape, {})
  return images


@pytest.fixture
def bytes_of():
  rng = np.random.default_rng(0)
  return lambda *shape: rng.integers(0, 256, shape, np.uint8)


def save_npz(path, **arrays):
  np.savez(path, **arrays)
  return str(path)


def test_an_npz_file_of_the_users(bytes_of, tmp_path):
  images = bytes_of(3, 4, 5)
  others = {'labels': np.zeros(3, int), 'client_ids': np.array(list('xyz'))}
  path = save_npz(tmp_path / 'a.npz', images=images, **others)
  found = read(path, GREY)
  assert found.dtype == np.uint8
  np.testing.assert_array_equal(found, images[..., np.newaxis])
  colour = bytes_of(2, 4, 5, 3)
  path = save_npz(tmp_path / 'b.NPZ', images=colour)
  # `np.savez` adds the ending that it knows.
  (tmp_path / 'b.NPZ.npz').rename(path)
  np.testing.assert_array_equal(read(path, COLOUR), colour)


@pytest.mark.parametrize('dtype', [np.float16, np.float32, np.float64])
def test_floats_from_0_to_1(dtype, bytes_of, tmp_path):
  images = bytes_of(3, 4, 5, 1)
  np.save(tmp_path / 'a.npy', (images / 255).astype(dtype))
  found = read(str(tmp_path / 'a.npy'), GREY)
  np.testing.assert_array_equal(found, images)


def test_pictures(bytes_of, tmp_path):
  grey, colour = bytes_of(4, 5), bytes_of(4, 5, 3)
  black_white = Image.fromarray(grey).convert('1')
  palette = Image.fromarray(colour).convert('P')
  for name, image, shape, expected in (
    ('a.png', Image.fromarray(grey), GREY, grey),
    ('b.PNG', Image.fromarray(colour), COLOUR, colour),
    ('c.png', black_white, GREY, black_white.convert('L')),
    ('d.png', palette, COLOUR, palette.convert('RGB')),
  ):
    image.save(tmp_path / name)
    found = read(str(tmp_path / name), shape)
    assert found.shape == (1, *shape) and found.dtype == np.uint8
    expected = np.asarray(expected).reshape(shape)
    np.testing.assert_array_equal(found[0], expected)
  turned = np.rot90(grey, -1)
  exif = Image.Exif()
  exif[0x0112] = 8  # Left of its top.
  Image.fromarray(turned).save(tmp_path / 'turned.png', exif=exif)
  found = read(str(tmp_path / 'turned.png'), GREY)
  np.testing.assert_array_equal(found[0, ..., 0], grey)
  for name in ('e.jpg', 'f.jpeg'):
    Image.fromarray(np.full((4, 5), 77, np.uint8)).save(tmp_path / name)
    assert (read(str(tmp_path / name), GREY) == 77).all()


def png(path, array=None, mode=None, **options):
  array = np.zeros((4, 5), np.uint8) if array is None else array
  image = Image.fromarray(array)
  (image if mode is None else image.convert(mode)).save(path, **options)


def cut_off(path):
  png(path, np.arange(20, dtype=np.uint8).reshape(4, 5))
  path.write_bytes(path.read_bytes()[:-30])


def larger_than_the_memory(path):
  png(path, np.zeros((9, 5), np.uint8))
  os.truncate(path, 2**40)


def npy(array):
  return lambda path: np.save(path, array)


def npz(**arrays):
  return lambda path: np.savez(path, **arrays)


@pytest.mark.parametrize(
  'name, write, message',
  [
    ('a.gif', None, 'give files that end in .npz, .npy, .png, .jpg or .jpeg.'),
    ('a.npz', None, 'no such file'),
    ('a.npz', lambda p: p.write_bytes(b'PK'), 'no complete npz file'),
    (
      'a.npz',
      npz(labels=np.zeros(3, int)),
      "found the keys ['labels']; there must be images",
    ),
    ('a.npz', npz(images=np.array([None])), 'pickled objects'),
    ('a.npz', npz(images=np.zeros((0, 4, 5), 'u1')), '(0, 4, 5)'),
    ('a.npy', lambda p: p.write_bytes(b'no'), 'no complete npy file'),
    ('a.npy', npy(np.array([{}])), 'object [1]'),
    ('a.npy', npy(np.zeros((4, 5), 'u1')), '(4, 5)'),
    ('a.npy', npy(np.zeros((1, 4, 5), int)), 'found int64'),
    (
      'a.npy',
      npy(np.zeros((1, 5, 4), 'u1')),
      'of [5, 4, 1] (height, width, channels), and the model takes '
      '[4, 5, 1]; resize or convert them',
    ),
    ('a.npy', npy(np.full((1, 4, 5), 255.0)), '255 to 255; give uint8'),
    ('a.npy', npy(np.full((1, 4, 5), np.nan)), '20 pixels that are NaN'),
    ('a.png', lambda p: p.write_bytes(b'\x89PNG'), 'neither a PNG nor a'),
    ('a.png', lambda p: png(p, format='GIF'), 'neither a PNG nor a JPEG'),
    ('a.png', lambda p: png(p, np.zeros((9, 5), np.uint8)), 'of [9, 5, 1]'),
    ('a.jpg', lambda p: png(p, mode='RGB'), 'found images of [4, 5, 3]'),
    (
      'a.png',
      lambda p: png(p, np.zeros((4, 5), np.uint16)),
      'has 16 bits per',
    ),
    ('a.png', cut_off, 'damaged or cut short'),
    ('a.png', larger_than_the_memory, 'found images of [9, 5, 1]'),
  ],
)
def test_what_cannot_be_read(name, write, message, tmp_path, refusal):
  path = tmp_path / name
  if write is not None:
    write(path)
  with refusal(message, str(path)):
    read(str(path), GREY)
