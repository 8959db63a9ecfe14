"""The operations against Pillow, image by image and bit by bit."""

import warnings

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps
from sklearn import datasets

from tff_ssl.augmentation import image_ops
from tff_ssl.augmentation.image_ops import Operation

_SIGNED = {
  Operation.ROTATE,
  Operation.SHEAR_X,
  Operation.SHEAR_Y,
  Operation.TRANSLATE_X,
  Operation.TRANSLATE_Y,
}
_CASES = [
  pytest.param(op, sign, id=f'{op.name}{"+" if sign > 0 else "-"}')
  for op in Operation
  for sign in ((1, -1) if op in _SIGNED else (1,))
]


def _colour_images() -> np.ndarray:
  """Photographs cut to 32x32 at several scales, noise and flat colours."""
  crops = []
  for photo in datasets.load_sample_images().images:
    for side in (32, 90, 400):
      for top, left in ((0, 0), (20, 200)):
        crop = Image.fromarray(photo[top : top + side, left : left + side])
        crops.append(np.array(crop.resize((32, 32), Image.Resampling.BILINEAR)))
  noise = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
  flat = np.full((1, 32, 32, 3), (7, 200, 255), np.uint8)
  return np.concatenate([crops, noise, flat])


def _grey_images() -> np.ndarray:
  """Handwritten digits at 28x28, a faint digit, noise and a flat image."""
  digits = []
  for digit in datasets.load_digits().images[:10]:
    image = Image.fromarray((digit * 255 / 16).astype(np.uint8))
    digits.append(np.array(image.resize((28, 28), Image.Resampling.BILINEAR)))
  faint = 100 + np.array(digits[:1]) // 50
  noise = np.random.default_rng(1).integers(0, 256, (1, 28, 28), np.uint8)
  flat = np.full((1, 28, 28), 90)
  images = np.concatenate([digits, faint, noise, flat])
  return images.astype(np.uint8)[..., np.newaxis]


def _oblong_images() -> np.ndarray:
  """Noise of 12 rows by 41 columns, which tells the two axes apart."""
  rng = np.random.default_rng(2)
  return rng.integers(0, 256, (6, 12, 41, 3), np.uint8)


_IMAGES = {
  'colour_32x32': _colour_images,
  'grey_28x28': _grey_images,
  'oblong_12x41': _oblong_images,
}


@pytest.fixture(scope='module', params=list(_IMAGES))
def images(request):
  return _IMAGES[request.param]()


def _affine(image, matrix, fill):
  fillcolor = fill if image.mode == 'L' else (fill,) * 3
  return image.transform(
    image.size, Image.Transform.AFFINE, matrix, fillcolor=fillcolor
  )


def _rotate(image, degrees, fill):
  fillcolor = fill if image.mode == 'L' else (fill,) * 3
  return image.rotate(degrees, fillcolor=fillcolor)


def _by_pillow(op, image, v, sign, fill):
  """What FixMatch's PyTorch implementations do to one image."""
  factor = float(v) * 0.9 / 10 + 0.05
  portion = sign * (float(v) * 0.3 / 10)
  width, height = image.size
  match op:
    case Operation.AUTO_CONTRAST:
      return ImageOps.autocontrast(image)
    case Operation.BRIGHTNESS:
      return ImageEnhance.Brightness(image).enhance(factor)
    case Operation.COLOR:
      return ImageEnhance.Color(image).enhance(factor)
    case Operation.CONTRAST:
      return ImageEnhance.Contrast(image).enhance(factor)
    case Operation.EQUALIZE:
      return ImageOps.equalize(image)
    case Operation.IDENTITY:
      return image
    case Operation.POSTERIZE:
      return ImageOps.posterize(image, int(v * 4 / 10) + 4)
    case Operation.ROTATE:
      return _rotate(image, sign * int(v * 30 / 10), fill)
    case Operation.SHARPNESS:
      return ImageEnhance.Sharpness(image).enhance(factor)
    case Operation.SHEAR_X:
      return _affine(image, (1, portion, 0, 0, 1, 0), fill)
    case Operation.SHEAR_Y:
      return _affine(image, (1, 0, 0, portion, 1, 0), fill)
    case Operation.SOLARIZE:
      return ImageOps.solarize(image, 256 - int(v * 256 / 10))
    case Operation.TRANSLATE_X:
      return _affine(image, (1, 0, int(portion * width), 0, 1, 0), fill)
    case Operation.TRANSLATE_Y:
      return _affine(image, (1, 0, 0, 0, 1, int(portion * height)), fill)


def _pillow(image):
  return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def _expected(ops, images, strengths, signs, fill):
  results = []
  for op, image, v, sign in zip(ops, images, strengths, signs, strict=True):
    result = _by_pillow(op, _pillow(image), v, sign, fill)
    results.append(np.array(result).reshape(image.shape))
  return np.stack(results)


@pytest.mark.parametrize('op,sign', _CASES)
def test_equals_pillow_at_every_strength(op, sign, images):
  strengths = np.repeat(np.arange(1, 10), len(images))
  batch = np.tile(images, (9, 1, 1, 1))
  ops, signs = np.full(len(batch), op), np.full(len(batch), sign)
  actual = image_ops.apply_operations(batch, ops, strengths, signs)
  expected = _expected(ops, batch, strengths, signs, fill=0)
  np.testing.assert_array_equal(actual, expected)
  if op is Operation.COLOR and images.shape[-1] == 1:
    np.testing.assert_array_equal(actual, batch)
  elif op is not Operation.IDENTITY:
    assert np.any(actual.numpy() != batch)


def test_mixed_batch_equals_pillow_with_fill(images):
  rng = np.random.default_rng(3)
  batch = images[rng.integers(len(images), size=200)]
  ops = rng.integers(14, size=200)
  strengths = rng.integers(1, 10, size=200)
  signs = rng.choice([-1, 1], size=200)
  actual = image_ops.apply_operations(batch, ops, strengths, signs, fill=99)
  expected = _expected(ops, batch, strengths, signs, fill=99)
  np.testing.assert_array_equal(actual, expected)


def test_fractional_strengths_equal_pillow():
  batch = np.repeat(_oblong_images()[:1], 14, axis=0)
  ops, signs = np.arange(14), np.full(14, -1.0)
  strengths = np.full(14, 6.7)
  actual = image_ops.apply_operations(batch, ops, strengths, signs)
  expected = _expected(ops, batch, strengths, signs, fill=0)
  np.testing.assert_array_equal(actual, expected)


def test_rotation_by_any_angle_equals_pillow(images):
  rng = np.random.default_rng(5)
  degrees = np.concatenate([[0, 90, 180, -90], rng.uniform(-180, 180, 60)])
  batch = images[rng.integers(len(images), size=len(degrees))]
  actual = image_ops.rotate(batch, degrees, fill=99)
  expected = []
  for image, angle in zip(batch, degrees, strict=True):
    turned = _rotate(_pillow(image), float(angle), 99)
    expected.append(np.array(turned).reshape(image.shape))
  np.testing.assert_array_equal(actual, np.stack(expected))


@pytest.mark.parametrize('size', [0, 1, 5])
@pytest.mark.parametrize('channels', [1, 3])
def test_batch_may_be_unknown_empty_or_of_one_operation(size, channels):
  signature = [
    tf.TensorSpec([None, 8, 9, channels], tf.uint8),
    tf.TensorSpec([None], tf.int32),
  ]

  @tf.function(autograph=False, input_signature=signature)
  def apply(images, ops):
    ones = tf.ones_like(ops)
    result = image_ops.apply_operations(images, ops, ones, ones)
    assert result.shape.as_list() == [None, 8, 9, channels]
    return result

  images = np.random.default_rng(4).integers(
    0, 256, (size, 8, 9, channels), np.uint8
  )
  for op in Operation:
    ops = np.full(size, op, np.int32)
    expected = (
      _expected(ops, images, ops * 0 + 1, ops * 0 + 1, 0) if size else images
    )
    np.testing.assert_array_equal(apply(images, ops), expected)


def test_serialised_graph_computes_the_same_elsewhere():
  batch = _grey_images()
  ops = np.arange(len(batch), dtype=np.int32)
  signature = [
    tf.TensorSpec([None, 28, 28, 1], tf.uint8),
    tf.TensorSpec([None], tf.int32),
  ]

  @tf.function(autograph=False, input_signature=signature)
  def apply(images, ops):
    v = tf.fill(tf.shape(ops), 7)
    return image_ops.apply_operations(images, ops, v, tf.ones_like(v))

  graph = apply.get_concrete_function().graph
  serialised = graph.as_graph_def().SerializeToString()
  imported = tf.compat.v1.GraphDef.FromString(serialised)
  assert not any('PyFunc' in node.op for node in imported.node)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.import_graph_def(imported, name='')
    feed = dict(zip([t.name for t in graph.inputs], (batch, ops), strict=True))
    result = session.run(graph.outputs[0].name, feed)
  v, sign = np.full(len(ops), 7), np.ones(len(ops), int)
  np.testing.assert_array_equal(result, _expected(ops, batch, v, sign, 0))


@pytest.fixture(scope='module')
def addons():
  """TensorFlow Addons, which implements some of the operations by itself."""
  with warnings.catch_warnings():
    # That its development has ended.
    warnings.simplefilter('ignore')
    import tensorflow_addons

  return tensorflow_addons.image


def _by_addons(addons, op, image, strength, sign):
  """The operation on one image [1, h, w, c].

  Of a map they take the source of a pixel's index, not of its centre: so half
  of what a shear adds for one pixel is added for all.
  """
  factor = strength * 0.9 / 10 + 0.05
  portion = sign * strength * 0.3 / 10
  moved = portion * np.array(image.shape[2:0:-1])  # Columns, rows.
  fill = {'fill_value': 99.0}
  match op:
    case Operation.EQUALIZE:
      return addons.equalize(image)
    case Operation.SHARPNESS:
      return addons.sharpness(image, factor)
    case Operation.BRIGHTNESS:
      return addons.blend(tf.zeros_like(image[0]), image[0], factor)[None]
    case Operation.COLOR:
      grey = tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image[0]))
      return addons.blend(grey, image[0], factor)[None]
    case Operation.TRANSLATE_X:
      return addons.translate(image, [-int(moved[0]), 0], **fill)
    case Operation.TRANSLATE_Y:
      return addons.translate(image, [0, -int(moved[1])], **fill)
    case Operation.SHEAR_X:
      matrix = [1.0, portion, portion / 2, 0.0, 1.0, 0.0, 0.0, 0.0]
      return addons.transform(image, matrix, **fill)
    case Operation.SHEAR_Y:
      matrix = [1.0, 0.0, 0.0, portion, 1.0, portion / 2, 0.0, 0.0]
      return addons.transform(image, matrix, **fill)
    case Operation.ROTATE:
      angle = np.deg2rad(sign * int(strength * 30 / 10))
      return addons.rotate(image, angle, **fill)


@pytest.mark.parametrize(
  'op, tolerance',
  [
    (Operation.EQUALIZE, 0),
    # They round where Pillow cuts off.
    (Operation.SHARPNESS, 1),
    (Operation.BRIGHTNESS, 1),
    (Operation.COLOR, 1),
    (Operation.TRANSLATE_X, 0),
    (Operation.TRANSLATE_Y, 0),
    (Operation.SHEAR_X, 0),
    (Operation.SHEAR_Y, 0),
    (Operation.ROTATE, 0),
  ],
  ids=lambda value: getattr(value, 'name', ''),
)
def test_operations_agree_with_tensorflow_addons(op, tolerance, addons):
  image = _oblong_images()[:1]
  # At even ones, shears meet the border between two pixels.
  for strength in (5, 9):
    for sign in (1, -1) if op in _SIGNED else (1,):
      expected = _by_addons(addons, op, image, strength, sign)
      actual = image_ops.apply_operations(
        image, [op], [strength], [sign], fill=99
      )
      assert np.any(actual.numpy() != image)
      np.testing.assert_allclose(
        tf.cast(actual, tf.int32), tf.cast(expected, tf.int32), atol=tolerance
      )
