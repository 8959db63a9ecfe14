"""Weak and strong views of examples for consistency training."""

from tff_ssl.augmentation.image_views import (
  ImageViews,
  check_range,
  rand_augment_views,
)
from tff_ssl.augmentation.views import (
  PlainViews,
  TokenViews,
  VectorViews,
)

__all__ = [
  'ImageViews',
  'PlainViews',
  'TokenViews',
  'VectorViews',
  'check_range',
  'rand_augment_views',
]
