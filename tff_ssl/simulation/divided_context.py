"""An execution context that divides a round among workers.

A computation from values at clients to values at the server is compiled to
TFF's mergeable form. The clients are cut into as many parts as there are
workers, in order; each part is computed up to the aggregates of its clients;
the aggregates are merged in the order of the parts; what follows at the server
runs on one worker. So the result depends on the number of workers (sums of
floats in another order), but not on which of them computed what, or when.

If a worker is lost, another one computes its part anew. The lost aggregate was
never merged, so each client counts once.

TFF's `MergeableCompExecutionContext` ties a part to one worker, and merges in
the order in which workers finish.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable

import tensorflow_federated as tff

# TFF's way to cut an argument into parts, which its public interface does not
# name.
from tensorflow_federated.python.core.impl.execution_contexts import (
  mergeable_comp_execution_context as _mergeable,
)

from tff_ssl.simulation import background, channels, secure_sums

_LOG = logging.getLogger(__name__)


class WorkerLost(Exception):
  """A worker that cannot be used now; the text names the reason."""


@dataclasses.dataclass(frozen=True)
class Member:
  """One worker of a `DividedContext`.

  Attributes:
    name: What messages call it.
    context: Computes on the worker, and raises `WorkerLost` where it cannot.
    is_available: Whether it can be used now.
  """

  name: str
  context: tff.framework.SyncContext
  is_available: Callable[[], bool] = lambda: True


class DividedContext(tff.framework.SyncContext):
  """Computes on several workers; see the module."""

  def __init__(self, members: list[Member]):
    """Initializes the context.

    Args:
      members: The workers; their number is the number of parts.
    """
    self._members = members
    self._compile = functools.lru_cache(_to_mergeable_form)
    self._losses = {}

  def invoke(self, comp, arg=None):
    """Computes `comp` on `arg`.

    Args:
      comp: A `tff.Computation`.
      arg: Its argument.

    Returns:
      The result.

    Raises:
      RuntimeError: If no worker is left.
      ValueError: If the computation cannot be divided, since one aggregation
        depends on another.
    """
    if not _is_divisible(comp) or len(self._members) == 1:
      return self._run(comp, [arg])[0]
    form = self._compile(comp)
    parts = _mergeable.MergeableCompExecutionContextValue(
      arg, form.up_to_merge.type_signature.parameter, len(self._members)
    ).value()
    aggregates = self._run(form.up_to_merge, parts)
    pair = tff.structure.Struct.unnamed
    merged = functools.reduce(
      lambda sum_, other: self._run(form.merge, [pair(sum_, other)])[0],
      aggregates,
    )
    # The argument's clients do not matter any more: any part of them will do.
    return self._run(form.after_merge, [pair(parts[0], merged)])[0]

  def run_on_each(self, comp) -> None:
    """Runs a computation without argument on every worker, side by side.

    Args:
      comp: The computation.

    Raises:
      RuntimeError: If it fails on one of them, with that one's name.
    """
    started = [
      (member, background.start(member.context.invoke, comp, None))
      for member in self._members
    ]
    for member, future in started:
      error = future.exception()
      if error is not None:
        cause = channels.first_cause(error)
        raise RuntimeError(f'{member.name}: {cause}') from error

  def _run(self, comp, args) -> list:
    """Computes `comp` on each of `args`, side by side, whoever is lost."""
    results = {}
    while waiting := [i for i in range(len(args)) if i not in results]:
      started = [
        (index, member, background.start(member.context.invoke, comp, arg))
        for index, member, arg in (
          (index, member, args[index])
          for index, member in zip(waiting, self._available(), strict=False)
        )
      ]
      for index, member, future in started:
        try:
          results[index] = future.result()
        except WorkerLost as error:
          self._losses[member.name] = str(error)
          _LOG.warning('%s: others take over its clients.', error)
    return [results[index] for index in range(len(args))]

  def _available(self) -> list[Member]:
    found = [member for member in self._members if member.is_available()]
    if not found:
      raise RuntimeError(
        f'No TFF worker is left: {"; ".join(self._losses.values())}. Start one '
        'again.'
      )
    return found


def _is_divisible(comp) -> bool:
  types = comp.type_signature
  return (
    types.parameter is not None
    and _lies_at_clients(types.parameter)
    and not _lies_at_clients(types.result)
  )


def _lies_at_clients(type_: tff.Type) -> bool:
  if isinstance(type_, tff.FederatedType):
    return type_.placement is tff.CLIENTS
  return any(map(_lies_at_clients, type_.children()))


def _to_mergeable_form(comp):
  try:
    return tff.backends.native.compile_to_mergeable_comp_form(
      secure_sums.simulate(comp)
    )
  except ValueError as error:
    raise ValueError(
      'The computation cannot be divided among workers '
      f'({channels.first_cause(error)}): use one worker.'
    ) from error
