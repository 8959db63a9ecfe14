"""What an aggregator does to the clients' values, read off its state.

TFF's factories hide their inner factories in closures, but each names its part
of the state, and an outer one carries the state of an inner one. So the type of
the state shows what is inside, however it is wrapped.
"""

import functools
from collections.abc import Callable, Iterator

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
    name == _OF_WEIGHTED_SUM and not _names(part).isdisjoint(_OF_NORMS)
    for name, part in _elements(process.state_type)
  )


def _elements(type_: compat.Type) -> Iterator[tuple[str | None, compat.Type]]:
  """Yields the names and types of all elements of all structures in a type."""
  if isinstance(type_, compat.StructType):
    yield from compat.iter_elements(type_)
  for part in type_.children():
    yield from _elements(part)


def _names(type_: compat.Type) -> set[str | None]:
  return {name for name, _ in _elements(type_)}
