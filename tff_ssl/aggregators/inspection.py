"""What an aggregator does to the clients' values, read off its state.

TFF's factories hide their inner factories in closures, but each names its part
of the state, and an outer one carries the state of an inner one. So the type of
the state shows what is inside, however it is wrapped.
"""

import functools
from collections.abc import Callable

import tensorflow_federated as tff

from tff_ssl import compat

# Of `tff.aggregators.DifferentiallyPrivateFactory`, which
# `tff.learning.dp_aggregator` and `ddp_secure_aggregator` build on.
_OF_PRIVACY = 'dp_event'
# Of `tff.aggregators.clipping_factory` and `tff.aggregators.zeroing_factory`.
_OF_NORMS = ('clipping_norm', 'zeroing_norm')
# All of TFF's secure operators have names that begin so.
_SECURE = b'federated_secure_'
# Of `tff.aggregators.MeanFactory`: the sum of weighted values.
_OF_WEIGHTED_SUM = 'value_sum_process'
# Of the factories in `robust_means`.
OF_COLLECTED_VALUES = 'collected_values'


def is_private(process: tff.templates.AggregationProcess) -> bool:
  """Returns whether TFF's differential privacy is part of an aggregator."""
  return _OF_PRIVACY in _names(process.state_type)


def has_secure_sums(computation: compat.Computation) -> bool:
  """Returns whether some sum over clients is one of TFF's secure sums."""
  proto = compat.serialize_computation(computation)
  return _SECURE in proto.SerializeToString()


def sum_of_bits(
  computation: compat.Computation,
) -> Callable[[compat.Value], compat.Value]:
  """Returns how to sum zeros and ones beside what a computation aggregates.

  The sum is secure where the computation has secure sums.
  """
  if has_secure_sums(computation):
    return functools.partial(compat.federated_secure_sum_bitwidth, bitwidth=1)
  return compat.federated_sum


def collects_values(process: tff.templates.AggregationProcess) -> bool:
  """Returns whether an aggregator takes a median or the like of all values."""
  return OF_COLLECTED_VALUES in _names(process.state_type)


def bounds_norms(process: tff.templates.AggregationProcess) -> bool:
  """Returns whether an aggregator clips or zeroes values by their norm."""
  return not _names(process.state_type).isdisjoint(_OF_NORMS)


def bounds_norms_of_weighted_values(
  process: tff.templates.AggregationProcess,
) -> bool:
  """Returns whether a weighted mean of TFF does so to values times weights."""
  return any(
    not _names(part).isdisjoint(_OF_NORMS)
    for part in _elements(process.state_type, _OF_WEIGHTED_SUM)
  )


def _names(type_: compat.Type) -> set[str]:
  """Returns the names of all elements of all structures in a type."""
  names = set()
  if isinstance(type_, compat.StructType):
    names.update(name for name, _ in compat.iter_elements(type_) if name)
  return names.union(*map(_names, type_.children()))


def _elements(type_: compat.Type, name: str) -> list[compat.Type]:
  """Returns the types of all elements of this name in a type."""
  found = []
  if isinstance(type_, compat.StructType):
    found = [t for n, t in compat.iter_elements(type_) if n == name]
  return sum((_elements(t, name) for t in type_.children()), found)
