"""Aggregators for `tff.aggregators`' own interfaces."""

from etils import epy

# The registry stands in `recommended`, which flags are made from without
# TensorFlow.
with epy.lazy_api_imports(globals()):
  from tff_ssl.aggregators.group_mean import GroupMeanFactory
  from tff_ssl.aggregators.inspection import (
    collects_values,
    has_secure_sums,
    is_private,
  )
  from tff_ssl.aggregators.normalized_mean import NormalizedMeanFactory
  from tff_ssl.aggregators.private_mean import PrivateMeanFactory
  from tff_ssl.aggregators.recommended import no_metrics, secure_metrics
  from tff_ssl.aggregators.robust_means import (
    CollectingFactory,
    MedianFactory,
    TrimmedMeanFactory,
  )
  from tff_ssl.aggregators.wrapping import rest_without_clients

__all__ = [
  'CollectingFactory',
  'GroupMeanFactory',
  'MedianFactory',
  'NormalizedMeanFactory',
  'PrivateMeanFactory',
  'TrimmedMeanFactory',
  'collects_values',
  'has_secure_sums',
  'is_private',
  'no_metrics',
  'rest_without_clients',
  'secure_metrics',
]
