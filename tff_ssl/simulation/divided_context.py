"""An execution context that divides the clients of a round into parts.

A computation from values at clients to values at the server is compiled to
TFF's mergeable form. The clients are cut into parts, in order; each part is
computed up to the aggregate of its clients, wherever that may be; the
aggregates are merged in the order of the parts, and what follows at the server
runs here. So the result depends on the number of parts (sums of floats in
another order), but not on who computed what, or when.

TFF's `MergeableCompExecutionContext` ties a part to one worker, and merges in
the order in which workers finish.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow_federated as tff

from tff_ssl import compat, compiled
from tff_ssl.simulation import processes

# Merges in one call: what they are compiled to grows with their number.
_MERGED_AT_ONCE = 15

# Computes a computation of each argument: `(tff.Computation, [argument, ...])`
# to the results, in order.
ComputeParts = Callable[[compat.Computation, Sequence[Any]], list]


class DividedContext(compat.SyncContext):
  """Computes in parts; see the module."""

  def __init__(
    self,
    local: compat.SyncContext,
    compute_parts: ComputeParts,
    num_parts: int,
  ):
    """Initializes the context.

    `local` computes what cannot be divided, and what follows the clients. The
    parts are as many as there are clients, if that is less than `num_parts`.
    """
    self._local = local
    self._compute_parts = compute_parts
    self._num_parts = num_parts
    self._compile = functools.lru_cache(_to_mergeable_form)
    self._merge_all = functools.lru_cache(_merge_all)

  def invoke(self, comp, arg=None):
    """Computes `comp` on `arg`; no aggregation may depend on another one."""
    if not _is_divisible(comp):
      return self._local.invoke(comp, arg)
    form = self._compile(comp)
    parts = compat.MergeableCompExecutionContextValue(
      arg, form.up_to_merge.type_signature.parameter, self._num_parts
    ).value()
    aggregates = self._compute_parts(form.up_to_merge, parts)
    struct = tff.structure.Struct.unnamed
    merged, *others = aggregates
    for start in range(0, len(others), _MERGED_AT_ONCE):
      some = (merged, *others[start : start + _MERGED_AT_ONCE])
      merged = self._local.invoke(
        self._merge_all(form.merge, len(some)), struct(*some)
      )
    # The argument's clients do not matter any more: any part of them will do.
    return self._local.invoke(form.after_merge, struct(parts[0], merged))


def lies_at_clients(type_: compat.Type) -> bool:
  """Returns whether any part of a type is placed at clients."""
  return compat.contains(
    type_, lambda part: getattr(part, 'placement', None) is compat.CLIENTS
  )


def _is_divisible(comp) -> bool:
  types = comp.type_signature
  return (
    types.parameter is not None
    and lies_at_clients(types.parameter)
    and not lies_at_clients(types.result)
  )


def _merge_all(merge: compat.Computation, number: int) -> compat.Computation:
  """Returns the computation that merges so many aggregates, in order."""

  # A call for each aggregate would turn the merged ones to NumPy and back.
  @compat.federated_computation([merge.type_signature.result] * number)
  def merge_all(aggregates):
    return functools.reduce(merge, [aggregates[i] for i in range(number)])

  return merge_all


def _to_mergeable_form(comp):
  try:
    return tff.backends.native.compile_to_mergeable_comp_form(
      compiled.simulate_secure_sums(comp)
    )
  except ValueError as error:
    raise ValueError(
      'The computation cannot be divided into parts '
      f'({processes.first_cause(error)}): compute it without a cluster.'
    ) from error
