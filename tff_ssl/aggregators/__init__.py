"""Aggregators for `tff.aggregators`' own interfaces."""

from tff_ssl.aggregators.group_mean import GroupMeanFactory
from tff_ssl.aggregators.normalized_mean import NormalizedMeanFactory

__all__ = ['GroupMeanFactory', 'NormalizedMeanFactory']
