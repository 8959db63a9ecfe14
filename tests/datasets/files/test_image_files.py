"""How a picture becomes a square: scaling, cutting, colours, transparency."""

import numpy as np
import pytest
from PIL import Image

from datasets.files import image_files

RNG = np.random.default_rng(4)


def pixels(*shape):
  return RNG.integers(0, 256, shape, np.uint8)


def write(path, array, **options):
  Image.fromarray(array).save(path, **options)


def square(tmp_path, array, side, name='x.png', **options):
  write(tmp_path / name, array, **options)
  return image_files.read_squares([tmp_path / name], side)[0]


def test_half_the_size_by_hand(tmp_path):
  """A pixel is the mean of four with the weights 1, 3, 3, 1 of eighths."""
  half = np.repeat([[0, 0, 200, 200]], 4, axis=0)
  whole = half.repeat(2, axis=0).repeat(2, axis=1).astype(np.uint8)
  found = square(tmp_path, whole, 4)[..., 0]
  # 1/8 of 200 where the bright block begins, 7/8 where the dark one ends.
  assert found.tolist() == [[0, 25, 175, 200]] * 4


def test_a_constant_stays_constant(tmp_path):
  for side in (4, 7, 31):
    found = square(tmp_path, np.full((9, 14), 77, np.uint8), side)
    assert found.shape == (side, side, 1) and (found == 77).all()


@pytest.mark.parametrize(
  'size, scaled, corner',
  [
    ((24, 16), (12, 8), (2, 0)),
    ((16, 40), (8, 20), (0, 6)),
    # Only the longer side is cut: pixels stay as they are.
    ((13, 8), (13, 8), (2, 0)),
    # Small ones are enlarged.
    ((4, 4), (8, 8), (0, 0)),
  ],
)
def test_is_pillows_scaling_and_then_the_middle(tmp_path, size, scaled, corner):
  array = pixels(size[1], size[0], 3)
  whole = Image.fromarray(array).resize(scaled, Image.Resampling.BILINEAR)
  left, top = corner
  wanted = whole.crop((left, top, left + 8, top + 8))
  np.testing.assert_array_equal(square(tmp_path, array, 8), wanted)


def test_a_long_picture_takes_no_more_memory_than_its_own(tmp_path):
  """Scaled whole, it would have 16,000 times as many pixels."""
  array = np.zeros((4, 100_000), np.uint8)
  assert square(tmp_path, array, 512).shape == (512, 512, 1)


def test_what_the_camera_says_is_applied(tmp_path):
  exif = Image.Exif()
  exif[0x0112] = 6  # To be turned clockwise by a quarter.
  array = pixels(8, 8)
  found = square(tmp_path, array, 8, exif=exif)[..., 0]
  np.testing.assert_array_equal(found, np.rot90(array, -1))


def test_transparent_pixels_become_white(tmp_path):
  array = pixels(4, 4, 4)
  array[..., 3] = 255
  array[0, 0] = (10, 20, 30, 0)
  array[0, 1] = (0, 0, 0, 51)  # A fifth of black.
  found = square(tmp_path, array, 4)
  assert found[0, 0].tolist() == [255] * 3
  assert found[0, 1].tolist() == [204] * 3
  np.testing.assert_array_equal(found[1:], array[1:, :, :3])


def test_grey_with_transparency_stays_grey(tmp_path):
  array = pixels(4, 4, 2)
  array[..., 1] = 255
  array[3, 3, 1] = 0
  found = square(tmp_path, array, 4)
  assert found.shape == (4, 4, 1) and found[3, 3] == 255
  np.testing.assert_array_equal(found[:3, :, 0], array[:3, :, 0])


def test_a_transparent_shade_becomes_white(tmp_path):
  """As a PNG file names one shade that is transparent."""
  array = np.full((4, 4), 9, np.uint8)
  array[1, 1] = 30
  found = square(tmp_path, array, 4, transparency=30)
  assert found[1, 1] == 255 and found.min() == 9


def test_palettes_are_colour(tmp_path):
  image = Image.new('P', (4, 4), 1)
  image.putpalette([0, 0, 0, 250, 100, 50])
  image.save(tmp_path / 'x.png')
  found = image_files.read_squares([tmp_path / 'x.png'], 4)
  assert found.shape == (1, 4, 4, 3)
  assert np.unique(found.reshape(-1, 3), axis=0).tolist() == [[250, 100, 50]]


def test_single_bits_are_scaled(tmp_path):
  array = RNG.random((4, 4)) > 0.5
  found = square(tmp_path, array, 4)[..., 0]
  np.testing.assert_array_equal(found, array * 255)


def test_a_jpeg_of_several_pictures_gives_the_first(tmp_path):
  """As phones write them, beside a smaller picture or a map of depths."""
  first, second = (Image.fromarray(pixels(8, 8, 3)) for _ in range(2))
  path = tmp_path / 'x.jpg'
  first.save(path, format='MPO', save_all=True, append_images=[second])
  found = image_files.read_squares([path], 8)
  np.testing.assert_array_equal(found[0], np.asarray(Image.open(path)))
