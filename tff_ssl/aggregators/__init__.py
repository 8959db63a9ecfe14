"""Aggregators for `tff.aggregators`' own interfaces."""

from tff_ssl.aggregators.group_mean import GroupMeanFactory

__all__ = ['GroupMeanFactory']
