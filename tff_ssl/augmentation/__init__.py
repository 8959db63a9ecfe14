"""Weak and strong views of examples for consistency training."""

from tff_ssl.augmentation.image_ops import Operation, apply_operations
from tff_ssl.augmentation.input_views import InputViews
from tff_ssl.augmentation.token_views import TokenViews
from tff_ssl.augmentation.vector_views import VectorViews
from tff_ssl.augmentation.views import (
  ImageViews,
  PlainViews,
  check_range,
  rand_augment_views,
)

__all__ = [
  'ImageViews',
  'InputViews',
  'Operation',
  'PlainViews',
  'TokenViews',
  'VectorViews',
  'apply_operations',
  'check_range',
  'rand_augment_views',
]
