"""The 14 image operations of FixMatch's RandAugment as batched graph ops.

`apply_operations` applies another operation to every image of a batch. It
agrees bit for bit with what Pillow does to one image at a time (`ImageEnhance`,
`ImageOps`, `Image.rotate` and `Image.transform` with nearest-neighbour
sampling), which is what the published PyTorch runs of FixMatch used, and holds
core TensorFlow ops only: it can be serialised and run in another process.

The time of such small images is the overhead of the ops. So the operations
share three kernels, one per Pillow module, and each kernel sees only the images
that drew one of its operations:

* a blend of the image with a degraded copy (brightness, color, contrast,
  sharpness),
* one table of 256 entries per channel (auto-contrast, equalize, posterize,
  solarize),
* an affine map (rotate, shear, translate).

Operations and magnitudes: Sohn et al., "FixMatch: Simplifying Semi-Supervised
Learning with Consistency and Confidence", 2020, Table 12,
https://arxiv.org/abs/2001.07685, with the strengths 1 to 9 of its PyTorch
implementations.
"""

import enum
import math

import numpy as np
import tensorflow as tf


class Operation(enum.IntEnum):
  """The operations; the magnitude that a strength v stands for is in brackets.

  Rotate, shear and translate take a sign; the others ignore it.
  """

  AUTO_CONTRAST = 0  # stretches each channel to 0..255
  BRIGHTNESS = 1  # [.09 v + .05] of the image, the rest black
  COLOR = 2  # [.09 v + .05] of the image, the rest its grey version
  CONTRAST = 3  # [.09 v + .05] of the image, the rest its mean grey
  EQUALIZE = 4  # flattens the histogram of each channel
  IDENTITY = 5
  POSTERIZE = 6  # keeps the upper [int(.4 v) + 4] bits
  ROTATE = 7  # [int(3 v)] degrees, counterclockwise where positive
  SHARPNESS = 8  # [.09 v + .05] of the image, the rest its smoothed version
  SHEAR_X = 9  # source column = x + [.03 v] y
  SHEAR_Y = 10  # source row = y + [.03 v] x
  SOLARIZE = 11  # inverts pixels from [256 - int(25.6 v)] on
  TRANSLATE_X = 12  # source column = x + [int(.03 v width)]
  TRANSLATE_Y = 13  # source row = y + [int(.03 v height)]


_UNTOUCHED, _BLEND, _TABLE, _WARP = range(4)
_OPERATIONS_OF_KERNEL = {
  _BLEND: ('BRIGHTNESS', 'COLOR', 'CONTRAST', 'SHARPNESS'),
  _TABLE: ('AUTO_CONTRAST', 'EQUALIZE', 'POSTERIZE', 'SOLARIZE'),
  _WARP: ('ROTATE', 'SHEAR_X', 'SHEAR_Y', 'TRANSLATE_X', 'TRANSLATE_Y'),
}
_KERNEL_OF_OPERATION = np.full(len(Operation), _UNTOUCHED, np.int32)
for _kernel, _names in _OPERATIONS_OF_KERNEL.items():
  _KERNEL_OF_OPERATION[[Operation[name] for name in _names]] = _kernel

_LEVELS = np.arange(256, dtype=np.int32)


def apply_operations(
  images: tf.Tensor,
  operations: tf.Tensor,
  strengths: tf.Tensor,
  signs: tf.Tensor,
  fill: int = 0,
) -> tf.Tensor:
  """Applies to each image its own operation.

  Args:
    images: `uint8` [batch, height, width, channels]. Only the batch may be
      unknown, or 0; a side has 3 pixels at least, channels are 1 or 3 (RGB).
    operations: `int32` [batch], values of `Operation`.
    strengths: Numbers [batch] in 1 to 10, where 10 is the full magnitude.
    signs: [batch] of +1 and -1, the direction of the signed operations.
    fill: The grey value, 0 to 255, of pixels that come from outside the image.
  """
  operations = tf.cast(operations, tf.int32)
  # Magnitudes are rounded down after they are computed in double precision, as
  # Python does; in single precision some would fall on the other side.
  strengths = tf.cast(strengths, tf.float64)
  signs = tf.cast(signs, tf.float64)

  kernels = tf.gather(_KERNEL_OF_OPERATION, operations)
  split = lambda values: tf.dynamic_partition(values, kernels, 4)
  # TensorFlow partitions and gathers no bytes on a GPU.
  parts = split(tf.cast(images, tf.int32))
  ops, v, sign = split(operations), split(strengths), split(signs)
  parts[_BLEND] = _blend(parts[_BLEND], ops[_BLEND], v[_BLEND])
  parts[_TABLE] = _look_up(parts[_TABLE], ops[_TABLE], v[_TABLE])
  parts[_WARP] = _warp(parts[_WARP], ops[_WARP], v[_WARP], sign[_WARP], fill)
  positions = split(tf.range(tf.shape(images)[0]))
  stitched = tf.cast(tf.dynamic_stitch(positions, parts), tf.uint8)
  return tf.ensure_shape(stitched, images.shape)


def rotate(images: tf.Tensor, degrees: tf.Tensor, fill: int = 0) -> tf.Tensor:
  """Turns each image about its centre by its own angle.

  As Pillow's `Image.rotate` with nearest-neighbour sampling, bit for bit, and
  so as torchvision's `RandomRotation`: counterclockwise where `degrees`, of
  shape [batch], are positive.
  """
  _, height, width, _ = images.shape
  angle = tf.cast(degrees, tf.float64) * (-math.pi / 180)
  matrix = _rotation_matrix(angle, height, width)
  turned = _sample(tf.cast(images, tf.int32), matrix, fill)
  return tf.ensure_shape(tf.cast(turned, tf.uint8), images.shape)


def _per_image(values: tf.Tensor, rank: int) -> tf.Tensor:
  """Reshapes [n] to [n, 1, ...] of `rank`, to broadcast over an image."""
  return tf.reshape(values, [-1] + [1] * (rank - 1))


def _where_drawn(
  operation: Operation, operations: tf.Tensor, values: tf.Tensor
) -> tf.Tensor:
  """Values [n, ...] of the images that drew the operation, 0 for the others.

  A product, for `tf.where` is several times slower where it broadcasts.
  """
  drawn = tf.cast(tf.equal(operations, operation), values.dtype)
  return values * _per_image(drawn, values.shape.rank)


def _blend(
  images: tf.Tensor, operations: tf.Tensor, strengths: tf.Tensor
) -> tf.Tensor:
  """Brightness, color, contrast and sharpness, as Pillow's `ImageEnhance`."""
  pixels = tf.cast(images, tf.float32)
  grey = _grey(images)
  flat = _where_drawn(Operation.COLOR, operations, grey)
  flat += _where_drawn(Operation.CONTRAST, operations, _mean(grey))
  flat = tf.stack([tf.cast(flat, tf.float32)] * images.shape[3], axis=3)
  smooth = _where_drawn(Operation.SHARPNESS, operations, _smooth(pixels))
  degraded = flat + smooth
  factors = tf.cast(strengths * 0.9 / 10 + 0.05, tf.float32)
  # Single precision and truncation, for Pillow's `Image.blend` has them.
  blended = degraded + _per_image(factors, 4) * (pixels - degraded)
  return tf.cast(blended, tf.int32)


def _grey(images: tf.Tensor) -> tf.Tensor:
  """The `int32` grey version, [n, height, width]."""
  bands = tf.unstack(images, axis=3)
  if len(bands) == 1:
    return bands[0]
  red, green, blue = bands
  # Pillow's weights, in units of 2^-16.
  weighted = 19595 * red + 38470 * green + 7471 * blue
  return tf.bitwise.right_shift(weighted + 0x8000, 16)


def _mean(grey: tf.Tensor) -> tf.Tensor:
  """The mean of each image, rounded half up, `int32` [n, 1, 1]."""
  size = grey.shape[1] * grey.shape[2]
  total = tf.reduce_sum(grey, axis=[1, 2], keepdims=True)
  return (2 * total + size) // (2 * size)


def _smooth(pixels: tf.Tensor) -> tf.Tensor:
  """Pillow's SMOOTH: weight 5 in the centre, 1 around, borders as they are.

  The sum is an integer over 13, never halfway between two grey values, so that
  single precision is enough to round it as Pillow does.
  """
  centre = pixels[:, 1:-1, 1:-1]
  # Sums of slices: pooling takes several times longer on few small images.
  rows = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]
  box = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
  smooth = tf.floor((box + 4 * centre) * (1 / 13) + 0.5)
  border = [[0, 0], [1, 1], [1, 1], [0, 0]]
  return pixels + tf.pad(smooth - centre, border)


def _look_up(
  images: tf.Tensor, operations: tf.Tensor, strengths: tf.Tensor
) -> tf.Tensor:
  """Auto-contrast, equalize, posterize and solarize, as `PIL.ImageOps`."""
  _, height, width, channels = images.shape
  planes = tf.reshape(images, [-1, height * width, channels])
  planes = tf.transpose(planes, [0, 2, 1])
  lowest = tf.reduce_min(planes, axis=2, keepdims=True)
  highest = tf.reduce_max(planes, axis=2, keepdims=True)
  strengths = _per_image(strengths, 3)
  drawn = lambda operation, table: _where_drawn(operation, operations, table)
  tables = (
    drawn(Operation.AUTO_CONTRAST, _auto_contrast_table(lowest, highest))
    + drawn(Operation.EQUALIZE, _equalize_table(planes, highest))
  ) + (
    drawn(Operation.POSTERIZE, _posterize_table(strengths))
    + drawn(Operation.SOLARIZE, _solarize_table(strengths))
  )
  planes = tf.gather(tables, planes, batch_dims=2)
  return tf.reshape(
    tf.transpose(planes, [0, 2, 1]), [-1, height, width, channels]
  )


def _equalize_table(planes: tf.Tensor, highest: tf.Tensor) -> tf.Tensor:
  """Equalising tables, `int32` [n, channels, 256], of [n, channels, pixels]."""
  _, channels, size = planes.shape
  counts = tf.raw_ops.DenseBincount(
    input=tf.reshape(planes, [-1, size]),
    size=256,
    weights=tf.constant([], tf.int32),
  )
  counts = tf.reshape(counts, [-1, channels, 256])
  at_highest = tf.gather(counts, highest, batch_dims=2)
  step = (size - at_highest) // 255
  below = tf.cumsum(counts, axis=2, exclusive=True)
  table = tf.minimum((below + step // 2) // tf.maximum(step, 1), 255)
  return tf.where(step > 0, table, _LEVELS)


def _auto_contrast_table(lowest: tf.Tensor, highest: tf.Tensor) -> tf.Tensor:
  """Stretching tables, `int32` [n, channels, 256], of [n, channels, 1]."""
  flat = highest <= lowest
  span = tf.cast(tf.where(flat, 255, highest - lowest), tf.float64)
  scale = 255.0 / span
  offset = -tf.cast(tf.where(flat, 0, lowest), tf.float64) * scale
  table = tf.cast(_LEVELS.astype(np.float64) * scale + offset, tf.int32)
  return tf.clip_by_value(table, 0, 255)


def _posterize_table(strengths: tf.Tensor) -> tf.Tensor:
  """Tables [n, 1, 256] that clear the lower 4 - int(.4 v) bits."""
  dropped = 4 - tf.cast(strengths * 4 / 10, tf.int32)
  return tf.bitwise.left_shift(
    tf.bitwise.right_shift(_LEVELS, dropped), dropped
  )


def _solarize_table(strengths: tf.Tensor) -> tf.Tensor:
  """Tables [n, 1, 256] that invert levels from 256 - int(25.6 v) on."""
  threshold = 256 - tf.cast(strengths * 256 / 10, tf.int32)
  return tf.where(threshold > _LEVELS, _LEVELS, 255 - _LEVELS)


def _warp(
  images: tf.Tensor,
  operations: tf.Tensor,
  strengths: tf.Tensor,
  signs: tf.Tensor,
  fill: int,
) -> tf.Tensor:
  """Rotate, shear and translate."""
  _, height, width, _ = images.shape
  rotation = signs * tf.floor(strengths * 30 / 10) * (-math.pi / 180)
  angle = _where_drawn(Operation.ROTATE, operations, rotation)
  xx, xy, x0, yx, yy, y0 = _rotation_matrix(angle, height, width)
  portion = strengths * 0.3 / 10
  shear_x = _where_drawn(Operation.SHEAR_X, operations, signs * portion)
  shear_y = _where_drawn(Operation.SHEAR_Y, operations, signs * portion)
  right = signs * tf.floor(portion * width)
  down = signs * tf.floor(portion * height)
  x0 += _where_drawn(Operation.TRANSLATE_X, operations, right)
  y0 += _where_drawn(Operation.TRANSLATE_Y, operations, down)
  # Of the centre of the first pixel, half a pixel away from its corner.
  x0 += shear_x / 2
  y0 += shear_y / 2
  return _sample(images, [xx, xy + shear_x, x0, yx + shear_y, yy, y0], fill)


def _rotation_matrix(
  angle: tf.Tensor, height: int, width: int
) -> list[tf.Tensor]:
  """The map from an output pixel's indices to source coordinates.

  The angle is in radians, `float64` [n], clockwise where positive. The map is
  xx, xy, x0, yx, yy and y0, each [n]: the source of pixel (x, y) is
  (xx x + xy y + x0, yx x + yy y + y0), where the centre of pixel (i, j) has
  source coordinates (i + .5, j + .5).
  """
  cos, sin = tf.cos(angle), tf.sin(angle)
  # The centre of the image stays where it is; sampled at the centre of the
  # output pixel, half a pixel from its index.
  x0 = (1 - cos) * (width / 2) - sin * (height / 2) + (cos + sin) / 2
  y0 = (1 - cos) * (height / 2) + sin * (width / 2) + (cos - sin) / 2
  return [cos, sin, x0, -sin, cos, y0]


def _sample(images: tf.Tensor, matrix: list[tf.Tensor], fill: int) -> tf.Tensor:
  """Reads the source pixel of each, as `Image.transform(AFFINE, NEAREST)`."""
  _, height, width, channels = images.shape
  # Pillow walks over the source in 16.16 fixed point; so does this, since the
  # nearest pixel may differ otherwise.
  fixed = tf.cast(tf.floor(tf.stack(matrix) * 65536 + 0.5), tf.int32)
  xx, xy, x0, yx, yy, y0 = tf.unstack(fixed[:, :, tf.newaxis, tf.newaxis])
  columns = np.arange(width, dtype=np.int32)
  rows = np.arange(height, dtype=np.int32)[:, np.newaxis]
  x = tf.bitwise.right_shift((xx * columns + x0) + xy * rows, 16)
  y = tf.bitwise.right_shift((yy * rows + y0) + yx * columns, 16)
  # A frame of one filled pixel stands for everything outside.
  x = tf.clip_by_value(x, -1, width) + 1
  y = tf.clip_by_value(y, -1, height) + 1
  frame = [[0, 0], [1, 1], [1, 1], [0, 0]]
  framed = tf.pad(images, frame, constant_values=fill)
  pixels = tf.reshape(framed, [-1, (height + 2) * (width + 2), channels])
  return tf.gather(pixels, y * (width + 2) + x, batch_dims=1)
