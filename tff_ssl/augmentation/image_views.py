"""Weak and strong views of images, drawn and normalised inside the graph.

A consistency loss compares two views of one example: the weak view labels it,
the strong view is trained on that label (Sohn et al., "FixMatch", 2020,
https://arxiv.org/abs/2001.07685, Section 2). All randomness derives from the
seed that the caller gives.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from tff_ssl import checks
from tff_ssl.augmentation import image_ops, views

# Uniform numbers per image: mirror, column and row of the crop; operation,
# whether applied, strength and sign per stage; column and row of the cutout;
# angle, last, so that the others are the same with and without a rotation.
_DRAWS_FOR_CROP = 3
_DRAWS_PER_STAGE = 4
_DRAWS_FOR_CUTOUT = 2
_DRAWS_FOR_ROTATION = 1
_MAX_STRENGTH = 9
# What the operations take for their full magnitude.
_FULL_STRENGTH = 10

# Keeps the views apart for a caller who gives both the same seed.
_WEAK, _STRONG = 0, 1


@dataclasses.dataclass(frozen=True)
class ImageViews:
  """Views of images: FixMatch's weak and strong augmentation.

  Weak: a turn where `rotation` is above 0, a mirror image with probability 1/2,
  then a crop of the image padded by reflection. Strong: the same with its own
  draws, then `num_ops` operations out of `image_ops.Operation`, drawn with
  replacement, each applied with probability 1/2 at a strength of 1 to 9, then a
  grey square. The defaults are those of FixMatch's PyTorch implementations.

  The methods take images of shape [batch, height, width, channels], `uint8` or
  `float32` in [0, 1] (rounded to 255 steps first), where only the batch may be
  unknown, and a seed: an `int32` or `int64` tensor of shape [2]. They return
  `float32` of the same shape: (pixel / 255 - mean) / stddev. Images that were
  standardised before are refused: a finite value outside of [0, 1] raises a
  `ValueError`, or in a graph an `InvalidArgumentError` when it runs. The same
  seed gives the same views; both methods may be given the same seed, their
  draws are independent.

  Attributes:
    mean: Mean of each channel, of pixels in [0, 1].
    stddev: Standard deviation of each channel, of pixels in [0, 1].
    flip: Whether images are mirrored left to right.
    crop_padding: Largest shift of the crop, in pixels. None means an eighth of
      the shorter side, rounded and at least 1, but 3 for 28 pixels. FixMatch
      shifts by up to 12.5% (Section 2.3); its code pads images of 32 pixels
      by 4 and STL-10's 96 pixels by 12. The code of Zhang et al. pads 28 by 3.
    rotation: Largest angle in degrees, 0 to 180: both views are turned by one
      between -rotation and rotation, drawn uniformly.
    num_ops: Operations drawn per strong view.
    strength: Strength of all operations, 1 to 10; None draws 1 to 9.
    apply_probability: Of each operation drawn.
    cutout_size: Size v of the square, in pixels. The square begins v / 2 before
      its centre or at the border and reaches v pixels further, both ends
      included as Pillow draws it: v + 1 pixels a side, less where it leaves the
      image on the right or below. None means half of the shorter side, 0 no
      square.
    fill: Grey value, 0 to 255, of what an operation moves in from outside.
    cutout_fill: Grey value, 0 to 255, of the square.
  """

  mean: tuple[float, ...]
  stddev: tuple[float, ...]
  flip: bool = True
  crop_padding: int | None = None
  rotation: float = 0.0
  num_ops: int = 2
  strength: int | None = None
  apply_probability: float = 0.5
  cutout_size: int | None = None
  fill: int = 0
  cutout_fill: int = 127

  def __post_init__(self):
    if len(self.mean) not in (1, 3) or len(self.mean) != len(self.stddev):
      raise ValueError(
        'mean and stddev must both hold 1 or 3 numbers, one per channel, got '
        f'{self.mean} and {self.stddev}.'
      )
    for mean, stddev in zip(self.mean, self.stddev, strict=True):
      views.check_normalisation(mean, stddev)
    checks.integers_at_least(
      0,
      optional=True,
      crop_padding=self.crop_padding,
      cutout_size=self.cutout_size,
    )
    checks.integers_at_least(0, num_ops=self.num_ops)
    checks.fractions(apply_probability=self.apply_probability)
    if not 0 <= self.rotation <= 180:
      raise ValueError(
        f'rotation must be from 0 to 180 degrees, got {self.rotation}.'
      )
    if self.strength is not None and not (1 <= self.strength <= _FULL_STRENGTH):
      raise ValueError(
        f'strength must be from 1 to {_FULL_STRENGTH}, got {self.strength}.'
      )
    for name in ('fill', 'cutout_fill'):
      value = getattr(self, name)
      if not 0 <= value <= 255:
        raise ValueError(
          f'{name} must be a grey value from 0 to 255, got {value}.'
        )

  def plain(self, images: tf.Tensor) -> tf.Tensor:
    """Returns the images as they are, normalised."""
    return self._normalise(self._to_uint8(images))

  def weak(self, images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns turned, mirrored and cropped images, normalised."""
    images = self._to_uint8(images)
    sizes = [_DRAWS_FOR_CROP, _DRAWS_FOR_ROTATION]
    crop, angle = _draw(images, sizes, seed, _WEAK)
    return self._normalise(self._move(images, crop, angle))

  def strong(self, images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns moved, distorted and covered images, normalised."""
    images = self._to_uint8(images)
    sizes = [
      _DRAWS_FOR_CROP,
      *[_DRAWS_PER_STAGE] * self.num_ops,
      _DRAWS_FOR_CUTOUT,
      _DRAWS_FOR_ROTATION,
    ]
    crop, *stages, cutout, angle = _draw(images, sizes, seed, _STRONG)
    images = self._move(images, crop, angle)
    for stage in stages:
      images = self._distort(images, stage)
    return self._normalise(self._cut_out(images, cutout))

  def _to_uint8(self, images: tf.Tensor) -> tf.Tensor:
    """Checks the images; floats in [0, 1] become 0 to 255."""
    images = tf.convert_to_tensor(images)
    if images.dtype == tf.float32:
      images = check_range(images)
      images = tf.saturate_cast(tf.round(images * 255), tf.uint8)
    if images.dtype != tf.uint8:
      raise TypeError(
        f'images must be uint8 with values 0 to 255, got {images.dtype.name}: '
        'cast them first.'
      )
    shape = images.shape
    if shape.rank != 4 or None in shape[1:].as_list():
      raise ValueError(
        'images must have shape [batch, height, width, channels] where only '
        f'the batch may be unknown, got {shape}: reshape them first.'
      )
    if min(shape[1], shape[2]) < 3:
      raise ValueError(
        f'images must be at least 3 by 3 pixels, got {shape}: enlarge them.'
      )
    if shape[3] != len(self.mean):
      raise ValueError(
        f'images have {shape[3]} channels but mean and stddev '
        f'{len(self.mean)}: give one number per channel.'
      )
    return images

  def _normalise(self, images: tf.Tensor) -> tf.Tensor:
    _, height, width, channels = images.shape
    mean, stddev = np.array(self.mean), np.array(self.stddev)
    scale = np.float32(1 / (255 * stddev))
    shift = np.float32(mean / stddev)
    # Whole pixel rows: an innermost axis of 3 is slow to broadcast over.
    rows = tf.cast(tf.reshape(images, [-1, width * channels]), tf.float32)
    rows = rows * np.tile(scale, width) - np.tile(shift, width)
    return tf.reshape(rows, [-1, height, width, channels])

  def _move(
    self, images: tf.Tensor, crop: tf.Tensor, angle: tf.Tensor
  ) -> tf.Tensor:
    """Turns, mirrors and crops; draws are [3, batch] and [1, batch]."""
    if self.rotation:
      degrees = (2 * angle[0] - 1) * self.rotation
      images = image_ops.rotate(images, degrees, self.fill)
    # A mirror image and a crop are one gather.
    _, height, width, channels = images.shape
    padding = self._padding(height, width)
    columns = _windows(width, padding)
    mirrored = width - 1 - columns if self.flip else columns
    mirror, left, top = tf.unstack(crop)
    left = _uniform_int(left, 2 * padding + 1)
    top = _uniform_int(top, 2 * padding + 1)
    left += tf.where(mirror < 0.5, len(columns), 0)
    x = tf.gather(np.concatenate([columns, mirrored]), left)
    y = tf.gather(_windows(height, padding) * width, top)
    source = y[:, :, tf.newaxis] + x[:, tf.newaxis, :]
    pixels = tf.reshape(images, [-1, height * width, channels])
    # TensorFlow gathers no bytes on a GPU.
    moved = tf.gather(tf.cast(pixels, tf.int32), source, batch_dims=1)
    return tf.cast(moved, tf.uint8)

  def _padding(self, height: int, width: int) -> int:
    side = min(height, width)
    if self.crop_padding is None:
      return 3 if side == 28 else max(1, round(side / 8))
    if self.crop_padding >= side:
      raise ValueError(
        f'crop_padding must be smaller than the image, got {self.crop_padding} '
        f'for images of {height} by {width} pixels: reflection has no more '
        'pixels to give.'
      )
    return self.crop_padding

  def _distort(self, images: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """One RandAugment stage; draws are [4, batch] in [0, 1)."""
    operation, applied, strength, sign = tf.unstack(draws)
    operations = tf.where(
      applied < self.apply_probability,
      _uniform_int(operation, len(image_ops.Operation)),
      image_ops.Operation.IDENTITY,
    )
    strengths = 1 + _uniform_int(strength, _MAX_STRENGTH)
    if self.strength is not None:
      strengths = tf.fill(tf.shape(strengths), self.strength)
    return image_ops.apply_operations(
      images,
      operations,
      strengths=strengths,
      signs=tf.where(sign < 0.5, 1, -1),
      fill=self.fill,
    )

  def _cut_out(self, images: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """Covers a square; draws are [2, batch] in [0, 1), its centre."""
    _, height, width, channels = images.shape
    size = self.cutout_size
    if size is None:
      size = min(height, width) // 2
    if size == 0:
      return images
    x, y = tf.unstack(draws)
    # Whole pixel rows: an innermost axis of 3 is slow to broadcast over.
    columns = _span(x * width, size, np.repeat(np.arange(width), channels))
    rows = _span(y * height, size, np.arange(height))
    covered = tf.logical_and(rows[:, :, tf.newaxis], columns[:, tf.newaxis, :])
    pixels = tf.reshape(images, [-1, height, width * channels])
    pixels = tf.where(covered, tf.constant(self.cutout_fill, tf.uint8), pixels)
    return tf.reshape(pixels, [-1, height, width, channels])


def rand_augment_views(
  num_ops: int,
  strength: int,
  *,
  mean: tuple[float, ...],
  stddev: tuple[float, ...],
  flip: bool = True,
  crop_padding: int | None = None,
  rotation: float = 0.0,
  fill: int = 0,
) -> ImageViews:
  """Returns views of which the strong one is RandAugment, behind the weak one.

  An image is turned, mirrored and cropped as in the weak view, then distorted.

  Cubuk et al., arXiv 1909.13719, Figure 2: N operations, each applied, at one
  strength M; no grey square. FedLabel (arXiv 2307.08809) writes (1, 10) below
  Eq. 5, N = 1 and M = 10 in that notation, but in Section 5.2 speaks of 10
  operations at strength 1.

  Args:
    num_ops: N.
    strength: M, 1 to 10, where 10 is the operations' full magnitude.
    mean: As in `ImageViews`, and so are the others.
    stddev: Of the channels.
    flip: Whether images are mirrored.
    crop_padding: Of the crop, in pixels.
    rotation: Largest angle, in degrees.
    fill: Grey value of what is moved in.

  Raises:
    ValueError: If an argument is out of range.
  """
  return ImageViews(
    mean,
    stddev,
    flip=flip,
    crop_padding=crop_padding,
    rotation=rotation,
    num_ops=num_ops,
    strength=strength,
    apply_probability=1.0,
    cutout_size=0,
    fill=fill,
  )


def check_range(images: tf.Tensor) -> tf.Tensor:
  """Returns the `float32` images, which fail where a pixel is not in [0, 1].

  They raise `ValueError`, or in a graph, when what is returned runs,
  `tf.errors.InvalidArgumentError`. Images with pixels that are not finite pass:
  clients who hold some are left out of the round and counted, while an error
  would end the round for all. `ImageViews` itself makes such pixels black or
  white.
  """
  low, high = tf.reduce_min(images), tf.reduce_max(images)
  # What rounding to 255 steps brings back.
  slack = 0.5 / 255
  in_range = ((low >= -slack) | ~tf.math.is_finite(low)) & (
    (high <= 1 + slack) | ~tf.math.is_finite(high)
  )
  message = 'images must be uint8, or float32 in [0, 1], but have pixels from'
  remedy = (
    'give pixels, which are standardised later (ImageViews, by mean and '
    'stddev); for standardised examples use PlainViews'
  )
  if tf.executing_eagerly():
    if not in_range:
      raise ValueError(f'{message} {low:.3g} to {high:.3g}: {remedy}.')
    return images
  check = tf.debugging.Assert(in_range, [message, low, 'to', high, remedy])
  # TFF cuts the graph out by its outputs, and with it an operation that none of
  # them depends on.
  with tf.control_dependencies([check]):
    return tf.identity(images)


def _draw(
  images: tf.Tensor, sizes: list[int], seed: tf.Tensor, view: int
) -> list[tf.Tensor]:
  """Draws numbers in [0, 1), [size, batch] each, in one op for speed."""
  seed = tf.random.experimental.stateless_fold_in(seed, view)
  # The algorithm is named because the default may depend on the device.
  draws = tf.random.stateless_uniform(
    [sum(sizes), tf.shape(images)[0]], seed, alg='philox'
  )
  return tf.split(draws, sizes)


def _uniform_int(uniform: tf.Tensor, count: int) -> tf.Tensor:
  """Turns uniform numbers in [0, 1) into integers 0 to count - 1."""
  return tf.cast(uniform * count, tf.int32)


def _windows(size: int, padding: int) -> np.ndarray:
  """Source positions of every crop of a reflected axis, [2 padding+1, size]."""
  axis = np.pad(np.arange(size, dtype=np.int32), padding, mode='reflect')
  return np.lib.stride_tricks.sliding_window_view(axis, size)


def _span(centre: tf.Tensor, size: int, positions: np.ndarray) -> tf.Tensor:
  """Which positions the square covers, bool [batch, len(positions)]."""
  first = tf.cast(tf.maximum(centre - size / 2, 0), tf.int32)[:, tf.newaxis]
  positions = positions.astype(np.int32)
  return tf.logical_and(positions >= first, positions <= first + size)
