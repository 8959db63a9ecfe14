"""Aggregators for `tff.aggregators`' own interfaces."""

from tff_ssl.aggregators.group_mean import GroupMeanFactory
from tff_ssl.aggregators.idle_rounds import rest_in_first_rounds
from tff_ssl.aggregators.inspection import (
  bounds_norms,
  bounds_norms_of_weighted_values,
  collects_values,
  has_secure_sums,
  is_private,
)
from tff_ssl.aggregators.normalized_mean import NormalizedMeanFactory
from tff_ssl.aggregators.robust_means import (
  CollectingFactory,
  GeometricMedianFactory,
  MedianFactory,
  TrimmedMeanFactory,
)

__all__ = [
  'CollectingFactory',
  'GeometricMedianFactory',
  'GroupMeanFactory',
  'MedianFactory',
  'NormalizedMeanFactory',
  'TrimmedMeanFactory',
  'bounds_norms',
  'bounds_norms_of_weighted_values',
  'collects_values',
  'has_secure_sums',
  'is_private',
  'rest_in_first_rounds',
]
