"""Weak, strong and plain views: draws, geometry, normalisation, refusals."""

import costs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

from tff_ssl.augmentation import ImageViews, image_ops, rand_augment_views
from tff_ssl.augmentation.image_ops import Operation

# Undone by hand in the tests: pixel = 255 * view.
_AS_PIXELS = {'mean': (0.0,), 'stddev': (1.0,)}


def _seed(value: int = 0) -> tf.Tensor:
  return tf.constant([value, 7], tf.int32)


def _noise(batch: int, side: int = 12, channels: int = 1) -> np.ndarray:
  rng = np.random.default_rng(batch)
  return rng.integers(0, 256, (batch, side, side, channels), np.uint8)


def _to_pixels(view: tf.Tensor) -> np.ndarray:
  return np.rint(view.numpy() * 255).astype(int)


def _all_crops(image: np.ndarray, padding: int, flip: bool) -> set[bytes]:
  """Every weak view of an image [side, side, 1], made with numpy."""
  side = len(image)
  sources = [image, image[:, ::-1]] if flip else [image]
  widths = [(padding, padding), (padding, padding), (0, 0)]
  return {
    np.pad(source, widths, 'reflect')[y : y + side, x : x + side].tobytes()
    for source in sources
    for y in range(2 * padding + 1)
    for x in range(2 * padding + 1)
  }


def test_plain_normalises_by_hand_and_by_numpy():
  the_views = ImageViews((0.5, 0.25, 0.0), (0.5, 0.25, 2.0))
  images = np.zeros((2, 4, 4, 3), np.uint8)
  images[1] = 255
  view = the_views.plain(images)
  assert view.dtype == tf.float32
  np.testing.assert_allclose(view[0, 0, 0], [-1.0, -1.0, 0.0], atol=1e-6)
  np.testing.assert_allclose(view[1, 3, 3], [1.0, 3.0, 0.5], atol=1e-6)
  images = _noise(5, channels=3)
  mean, stddev = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
  view = ImageViews(mean, stddev).plain(images)
  expected = (images / 255 - mean) / stddev
  np.testing.assert_allclose(view, expected, atol=1e-6)


def test_float_images_are_rounded_to_pixels():
  the_views = ImageViews((0.1307,), (0.3081,))
  images = _noise(4)
  floats = (images / 255).astype(np.float32) + np.float32(0.4 / 255)
  floats = np.minimum(floats, 1)
  for method, *seed in (
    (the_views.weak, _seed()),
    (the_views.strong, _seed()),
    (the_views.plain,),
  ):
    np.testing.assert_array_equal(method(floats, *seed), method(images, *seed))


@pytest.mark.parametrize('flip', [True, False])
@pytest.mark.parametrize('padding', [0, 1, 2])
def test_weak_views_are_the_crops_of_the_padded_image(flip, padding):
  image = _noise(1, side=7)[0]
  the_views = ImageViews(**_AS_PIXELS, flip=flip, crop_padding=padding)
  batch = np.tile(image, (2000, 1, 1, 1))
  seen = _to_pixels(the_views.weak(batch, _seed())).astype(np.uint8)
  crops, counts = np.unique(seen.reshape(2000, -1), axis=0, return_counts=True)
  expected = _all_crops(image, padding, flip)
  assert len(expected) == (2 if flip else 1) * (2 * padding + 1) ** 2
  # Every crop comes, none else, and all about equally often.
  assert {crop.tobytes() for crop in crops} == expected
  mean = 2000 / len(expected)
  assert np.all(np.abs(counts - mean) < 5 * np.sqrt(mean))


@pytest.mark.parametrize(
  'height,width,expected',
  # Of STL-10, 96 by 96, FixMatch's code takes 12 pixels.
  [(96, 96, 12), (32, 40, 4), (28, 28, 3), (8, 8, 1), (5, 9, 1)],
)
def test_default_padding_follows_the_shorter_side(height, width, expected):
  # One bright column and row show the largest shift.
  images = np.zeros((1000, height, width, 1), np.uint8)
  images[:, height // 2, width // 2] = 255
  the_views = ImageViews(**_AS_PIXELS, flip=False)
  view = _to_pixels(the_views.weak(images, _seed()))[..., 0]
  _, y, x = np.nonzero(view)
  assert set(y - height // 2) == set(range(-expected, expected + 1))
  assert set(x - width // 2) == set(range(-expected, expected + 1))


@pytest.mark.parametrize('method', ['weak', 'strong'])
def test_rotation_turns_by_uniform_angles_within_its_limit(method, monkeypatch):
  drawn, rotate = [], image_ops.rotate

  def spy(images, degrees, fill):
    drawn.append(degrees.numpy())
    return rotate(images, degrees, fill)

  monkeypatch.setattr(image_ops, 'rotate', spy)
  images = _noise(2000)
  turning = ImageViews(
    **_AS_PIXELS, flip=False, crop_padding=0, rotation=20, num_ops=0,
    cutout_size=0, fill=40,
  )  # fmt: skip
  view = getattr(turning, method)(images, _seed())
  (degrees,) = drawn
  assert stats.kstest(degrees, stats.uniform(-20, 40).cdf).pvalue > 0.001
  np.testing.assert_array_equal(_to_pixels(view), rotate(images, degrees, 40))


@pytest.mark.parametrize('method', ['weak', 'strong'])
def test_rotation_leaves_the_other_draws_as_they_are(method):
  images = _noise(50)
  still, hardly = (
    ImageViews(**_AS_PIXELS, rotation=degrees) for degrees in (0, 1e-6)
  )
  np.testing.assert_array_equal(
    getattr(still, method)(images, _seed()),
    getattr(hardly, method)(images, _seed()),
  )


@pytest.mark.parametrize('method', ['weak', 'strong'])
def test_seed_decides_and_images_draw_for_themselves(method):
  view = getattr(ImageViews(**_AS_PIXELS), method)
  images = np.tile(_noise(1, side=28), (64, 1, 1, 1))
  first = view(images, _seed(1)).numpy()
  np.testing.assert_array_equal(first, view(images, _seed(1)))
  same_in_int64 = view(images, tf.constant([1, 7], tf.int64))
  np.testing.assert_array_equal(first, same_in_int64)
  other = view(images, _seed(2)).numpy()
  assert np.mean(np.any(first != other, axis=(1, 2, 3))) > 0.9
  different = np.unique(first.reshape(64, -1), axis=0)
  # 98 weak views are possible; 64 draws show about 47 of them.
  assert len(different) > 35


def test_weak_and_strong_draw_apart_under_one_seed():
  the_views = ImageViews(**_AS_PIXELS, num_ops=0, cutout_size=0)
  images = np.tile(_noise(1, side=28), (2000, 1, 1, 1))
  weak = the_views.weak(images, _seed()).numpy()
  strong = the_views.strong(images, _seed()).numpy()
  same = np.mean(np.all(weak == strong, axis=(1, 2, 3)))
  # Independent draws agree with probability 1 / 98.
  assert same == pytest.approx(1 / 98, abs=0.01)


@pytest.mark.parametrize('side,channels,size', [(28, 1, 14), (32, 3, 16)])
def test_cutout_covers_the_square_of_fixmatch(side, channels, size):
  the_views = ImageViews(
    (0.0,) * channels, (1.0,) * channels, num_ops=0, cutout_fill=200
  )
  count = 2000
  images = np.zeros((count, side, side, channels), np.uint8)
  view = _to_pixels(the_views.strong(images, _seed()))
  assert set(np.unique(view)) == {0, 200}
  covered = view > 0
  assert np.all(covered == covered[..., :1])
  covered = covered[..., 0]
  rows, columns = covered.any(axis=2), covered.any(axis=1)
  np.testing.assert_array_equal(
    covered, rows[:, :, np.newaxis] & columns[:, np.newaxis, :]
  )
  for axis in (rows, columns):
    first = axis.argmax(axis=1)
    last = side - 1 - axis[:, ::-1].argmax(axis=1)
    np.testing.assert_array_equal(axis.sum(axis=1), last - first + 1)
    # Begins at the border or half its size before a centre inside the image.
    assert set(first) == set(range(side - size // 2))
    # Reaches `size` pixels further, or to the border.
    np.testing.assert_array_equal(last, np.minimum(first + size, side - 1))
    # The centre is uniform: position 0 takes the first size / 2 + 1 of them.
    expected = (size / 2 + 1) / side
    assert np.mean(first == 0) == pytest.approx(expected, abs=0.04)


def test_cutout_is_grey_127_and_can_be_left_out():
  images = np.zeros((8, 16, 16, 1), np.uint8)
  with_square = ImageViews(**_AS_PIXELS, num_ops=0)
  assert np.max(_to_pixels(with_square.strong(images, _seed()))) == 127
  without = ImageViews(**_AS_PIXELS, num_ops=0, cutout_size=0)
  assert not np.any(without.strong(images, _seed()))


@pytest.fixture
def recorded_stages(monkeypatch):
  """Records the arguments of every stage and leaves the images as they are."""
  stages = []

  def record(images, operations, strengths, signs, fill):
    arrays = [np.array(x) for x in (operations, strengths, signs)]
    stages.append((*arrays, fill))
    return images

  monkeypatch.setattr(image_ops, 'apply_operations', record)
  return stages


def test_stages_draw_as_fixmatch_does(recorded_stages):
  count = 30_000
  images = np.zeros((count, 3, 3, 1), np.uint8)
  the_views = ImageViews(**_AS_PIXELS, num_ops=3, fill=9)
  the_views.strong(images, _seed())
  assert len(recorded_stages) == 3
  for operations, strengths, signs, fill in recorded_stages:
    assert fill == 9
    drawn = np.bincount(operations, minlength=14) / count
    # Each operation with probability 1/14, applied in half of the cases; what
    # is not applied is the identity.
    expected = np.full(14, 1 / 28)
    expected[Operation.IDENTITY] += 1 / 2
    np.testing.assert_allclose(drawn, expected, atol=0.01)
    expected = [0, *[1 / 9] * 9]
    np.testing.assert_allclose(
      np.bincount(strengths) / count, expected, atol=0.01
    )
    assert set(signs) == {-1, 1}
    assert np.mean(signs) == pytest.approx(0, abs=0.03)
  # No draw tells anything about another.
  columns = [column for stage in recorded_stages for column in stage[:3]]
  correlation = np.corrcoef(columns) - np.eye(len(columns))
  assert np.max(np.abs(correlation)) < 0.03


@pytest.mark.parametrize('num_ops, strength', [(1, 10), (3, 1)])
def test_rand_augment_draws_at_one_strength(recorded_stages, num_ops, strength):
  images = np.zeros((30_000, 3, 3, 1), np.uint8)
  rand = rand_augment_views(num_ops, strength, **_AS_PIXELS, fill=255)
  rand.strong(images, _seed())
  assert len(recorded_stages) == num_ops
  for operations, strengths, signs, fill in recorded_stages:
    # All of them are applied.
    drawn = np.bincount(operations, minlength=14) / len(images)
    np.testing.assert_allclose(drawn, 1 / 14, atol=0.01)
    assert (set(strengths), set(signs), fill) == ({strength}, {-1, 1}, 255)


def test_strong_applies_the_recorded_draws(recorded_stages, monkeypatch):
  images = _noise(40, side=28)
  the_views = ImageViews(**_AS_PIXELS, cutout_size=0, fill=30)
  # With the operations switched off only mirror and crop are left.
  cropped = _to_pixels(the_views.strong(images, _seed()))
  monkeypatch.undo()
  expected = cropped.astype(np.uint8)
  for operations, strengths, signs, fill in recorded_stages:
    expected = image_ops.apply_operations(
      expected, operations, strengths, signs, fill
    )
  actual = _to_pixels(the_views.strong(images, _seed()))
  np.testing.assert_array_equal(actual, expected)
  assert np.any(actual != cropped)


@pytest.mark.parametrize('channels', costs.rest_in('parts', [3, 1]))
@pytest.mark.parametrize(
  'dtype', costs.rest_in('parts', [tf.uint8, tf.float32])
)
def test_dynamic_empty_and_single_batches(channels, dtype):
  the_views = ImageViews((0.5,) * channels, (0.5,) * channels)
  signature = [
    tf.TensorSpec([None, 12, 14, channels], dtype),
    tf.TensorSpec([2], tf.int64),
  ]

  @tf.function(autograph=False, input_signature=signature)
  def all_views(images, seed):
    results = (
      the_views.plain(images),
      the_views.weak(images, seed),
      the_views.strong(images, seed),
    )
    for result in results:
      assert result.shape.as_list() == [None, 12, 14, channels]
      assert result.dtype == tf.float32
    return results

  seed = tf.constant([3, 4], tf.int64)
  for size in (0, 1, 7):
    images = tf.ones([size, 12, 14, channels], dtype)
    for result in all_views(images, seed):
      assert result.shape == (size, 12, 14, channels)
      assert np.all(np.isfinite(result))
  assert all_views.experimental_get_tracing_count() == 1


@pytest.mark.dear
def test_graph_equals_eager():
  the_views = ImageViews((0.5,) * 3, (0.5,) * 3)
  images = _noise(16, side=32, channels=3)
  for method in (the_views.weak, the_views.strong):
    np.testing.assert_array_equal(
      tf.function(method, autograph=False)(images, _seed()),
      method(images, _seed()),
    )


@pytest.mark.parametrize(
  'arguments,message',
  [
    ({'mean': (0.1, 0.1), 'stddev': (1.0, 1.0)}, '1 or 3 numbers'),
    ({'mean': (0.1,), 'stddev': (1.0,) * 3}, '1 or 3 numbers'),
    ({'mean': (float('nan'),)}, 'mean must be finite'),
    ({'stddev': (0.0,)}, 'stddev must be.*got 0.0'),
    ({'crop_padding': -1}, 'crop_padding must be an integer >= 0, but is -1'),
    ({'num_ops': -1}, 'num_ops must be an integer >= 0'),
    ({'cutout_size': -2}, 'cutout_size must be an integer >= 0'),
    ({'fill': 256}, 'fill must be a grey value from 0 to 255, got 256'),
    ({'fill': -1}, 'fill must be.*got -1'),
    ({'cutout_fill': -1}, 'cutout_fill must be'),
    ({'strength': 0}, 'strength must be from 1 to 10, got 0'),
    ({'strength': 11}, 'strength must be from 1 to 10, got 11'),
    ({'apply_probability': 1.5}, 'apply_probability .* is 1.5'),
  ],
)
def test_unsuitable_settings_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    ImageViews(**{**_AS_PIXELS, **arguments})


class TestFloatsOutsideOfTheRange:
  """Standardised images would lose nearly all of their values by clipping."""

  _STANDARDISED = np.linspace(-2, 2, 16, dtype=np.float32).reshape(1, 4, 4, 1)

  @pytest.mark.parametrize(
    'images', [_STANDARDISED, np.full((1, 4, 4, 1), 255, np.float32)]
  )
  @pytest.mark.parametrize('method', ['plain', 'weak', 'strong'])
  def test_they_are_refused_by_name(self, images, method):
    the_views = ImageViews(**_AS_PIXELS)
    seed = () if method == 'plain' else (_seed(),)
    with pytest.raises(ValueError, match=r'or float32 in \[0, 1\].* give'):
      getattr(the_views, method)(images, *seed)

  def test_a_graph_fails_when_it_runs(self, tff_context):
    the_views = ImageViews(**_AS_PIXELS)

    @tff.tensorflow.computation(
      tff.TensorType(np.float32, [None, 4, 4, 1]), tff.TensorType(np.int32, [2])
    )
    def weak(images, seed):
      return the_views.weak(images, seed)

    zeros = np.zeros((2, 4, 4, 1), np.float32)
    assert weak(zeros, [0, 1]).shape == zeros.shape
    with pytest.raises(Exception, match=r'or float32 in \[0, 1\]'):
      weak(self._STANDARDISED, [0, 1])

  @pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
  def test_what_is_not_finite_is_left_to_the_client_s_check(self, value):
    images = np.full((1, 4, 4, 1), 0.5, np.float32)
    images[0, 0, 0, 0] = value
    assert ImageViews(**_AS_PIXELS).plain(images).shape == images.shape


def test_unsuitable_images_are_refused():
  the_views = ImageViews(**_AS_PIXELS, crop_padding=8)
  with pytest.raises(ValueError, match='crop_padding.*smaller.*got 8'):
    the_views.weak(_noise(1, side=8), _seed())
  with pytest.raises(ValueError, match='3 channels but mean and stddev 1'):
    the_views.plain(_noise(1, channels=3))
  with pytest.raises(TypeError, match='uint8.*int32'):
    the_views.plain(_noise(1).astype(np.int32))
  with pytest.raises(TypeError, match='uint8.*float64.*cast'):
    the_views.plain(np.zeros((1, 8, 8, 1)))
  with pytest.raises(ValueError, match='batch, height, width'):
    the_views.plain(np.zeros((8, 8, 1), np.uint8))
  with pytest.raises(ValueError, match='2 channels but mean'):
    the_views.plain(np.zeros((1, 8, 8, 2), np.uint8))
  with pytest.raises(ValueError, match='3 by 3'):
    the_views.plain(np.zeros((1, 2, 8, 1), np.uint8))
  images = tf.TensorSpec([None, None, 8, 1], tf.uint8)
  plain = tf.function(the_views.plain, autograph=False)
  with pytest.raises(ValueError, match='only the batch may be unknown'):
    plain.get_concrete_function(images)
