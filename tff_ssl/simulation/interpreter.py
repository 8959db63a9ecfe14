"""Runs a TFF computation that is in call-dominant form.

Such a computation is a list of steps, each of which calls an intrinsic or a
TensorFlow block. Steps at the server run once. Those at clients run client by
client: all that lies between a broadcast and the aggregation of a round is one
pass, in which several clients are computed at a time. What a client contributes
is accumulated in the order of the clients, and then forgotten. So the result
does not depend on who is ready first, and the memory not on how many there are.

Values: a tensor is a `tf.Tensor`, a structure a list, a sequence a
`tf.data.Dataset`, a function a callable. A value at the server, or equal at all
clients, is itself; one that clients have each of their own is `Each`.
"""

import collections
import concurrent.futures
import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl import compat
from tff_ssl.simulation import processes, tensorflow_blocks

# How many clients more than are computed at a time may be begun or ready.
_AHEAD = 2
# What a scope has beside values by name, which are no integers.
_CALL, _SLOT = 0, 1


class Each(list):
  """A value of its own for each client, in their order."""


class Call:
  """One invocation: its clients, and how it ends.

  Attributes:
    begun: Futures of clients that have begun and were not accumulated.
  """

  def __init__(self, num_clients: int, at_once: int):
    self.num_clients = num_clients
    self._at_once = min(at_once, num_clients)
    self._running: set[int] = set()
    self.begun = collections.deque()
    self._is_cancelled = False
    self._cancellations: set[compat.CancellationManager] = set()

  def where(self) -> str:
    """Returns what runs now, in words."""
    numbers = ', '.join(str(index + 1) for index in sorted(self._running))
    if not numbers:
      return 'the server'
    return f'client {numbers} of {self.num_clients}'

  def cancel(self) -> None:
    """Ends what runs, between two operations of TensorFlow."""
    self._is_cancelled = True
    for cancellation in self._cancellations.copy():
      cancellation.start_cancel()

  @contextlib.contextmanager
  def cancellable(self) -> Iterator[compat.CancellationManager]:
    """Yields what `cancel` cancels; an operation that fails does so, too."""
    cancellation = compat.CancellationManager()
    self._cancellations.add(cancellation)
    try:
      if self._is_cancelled:
        cancellation.start_cancel()
      yield cancellation
    finally:
      self._cancellations.discard(cancellation)

  def of_clients(self, compute: Callable[[int, int], object]) -> Iterator:
    """Yields what `compute` returns for each client, in order.

    It is given the index of a client, and that of the slot in which the client
    is computed, in which there is no other meanwhile. What it raises for the
    first client that fails ends the call.
    """
    jobs = queue.SimpleQueue()

    def serve(slot):
      for index, future in iter(jobs.get, None):
        self._running.add(index)
        try:
          future.set_result(
            None if self._is_cancelled else compute(index, slot)
          )
        except BaseException as error:
          future.set_exception(error)
        finally:
          self._running.discard(index)

    # Threads of a pool would make Python's exit wait for one that hangs.
    for slot in range(self._at_once):
      processes.start_thread(serve, slot)
    try:
      for index in range(self.num_clients):
        self.begun.append(concurrent.futures.Future())
        jobs.put((index, self.begun[-1]))
        if len(self.begun) == self._at_once + _AHEAD:
          yield self._next_result()
      while self.begun:
        yield self._next_result()
    except BaseException:
      self.cancel()
      raise
    finally:
      for _ in range(self._at_once):
        jobs.put(None)

  def _next_result(self):
    result = self.begun[0].result()
    self.begun.popleft()
    return result


class _Stage:
  """Steps between two aggregations.

  Attributes:
    once: Names and functions of what is computed once.
    at_clients: Names and functions of what each client computes then.
    aggregations: Names and functions of what is aggregated then.
    kept: Names of `at_clients` that a later stage needs.
  """

  def __init__(self):
    self.once, self.at_clients, self.aggregations = [], [], []
    self.kept = set()


class Program:
  """A computation that can be run."""

  def __init__(
    self,
    comp: compat.Computation,
    functions: tensorflow_blocks.TensorFlowBlocks,
  ):
    """Compiles a computation; one of JAX is a `NotImplementedError`."""
    self._functions = functions
    tree, _ = tff.tensorflow.replace_intrinsics_with_bodies(
      comp.to_building_block()
    )
    tree = tff.framework.to_call_dominant(tree)
    self._parameter = None
    self._is_function = isinstance(tree, compat.CompiledComputation)
    if isinstance(tree, compat.Lambda):
      self._parameter, tree = tree.parameter_name, tree.result
    steps = tree.locals if isinstance(tree, compat.Block) else []
    result = tree.result if isinstance(tree, compat.Block) else tree
    self._stages = self._arrange(steps, result)
    self._result = self._translate(result)

  def run(self, argument, call: Call):
    """Returns the result for an argument, `None` if there is no parameter."""
    scope = {_CALL: call, _SLOT: 0, self._parameter or '': argument}
    for stage in self._stages:
      for name, function in stage.once:
        scope[name] = function(scope)
      if stage.at_clients or stage.aggregations:
        _run_at_clients(stage, scope, call)
    result = self._result(scope)
    return result(argument) if self._is_function else result

  def _arrange(self, steps, result) -> list[_Stage]:
    """Returns the stages of steps, each of which needs none that follows."""
    stages, stage_of, at_clients = [], {}, set()
    for name, step in steps:
      needed = _references(step) & stage_of.keys()
      number = max((stage_of[one] for one in needed), default=0)
      while len(stages) < number + 2:
        stages.append(_Stage())
      stage = stages[number]
      if _is_aggregation(step):
        stage.aggregations.append((name, self._aggregation(step)))
        stage_of[name] = number + 1
        continue
      stage_of[name] = number
      if _lies_at_each_client(step.type_signature):
        at_clients.add(name)
        stage.at_clients.append((name, self._translate(step)))
      else:
        stage.once.append((name, self._translate(step)))
    last_use = {name: len(stages) for name in _references(result)}
    for name, step in steps:
      # An aggregation has its values from the stage before.
      use = stage_of[name] - _is_aggregation(step)
      for one in _references(step):
        last_use[one] = max(last_use.get(one, 0), use)
    for name in at_clients:
      if last_use.get(name, 0) > stage_of[name]:
        stages[stage_of[name]].kept.add(name)
    return stages

  def _aggregation(self, step):
    if not isinstance(step.argument, compat.Struct):
      raise _not_run('an aggregation with arguments that are no structure')
    value, *others = map(self._translate, step.argument.children())
    return value, others

  def _translate(self, block) -> Callable[[dict], Any]:
    """Returns the function from values by name to the value of a block."""
    if isinstance(block, compat.Reference):
      name = block.name
      return lambda scope: scope[name]
    if isinstance(block, compat.Selection):
      source, index = self._translate(block.source), block.as_index()
      return lambda scope: source(scope)[index]
    if isinstance(block, compat.Struct):
      parts = [self._translate(one) for one in block.children()]
      return lambda scope: [part(scope) for part in parts]
    if isinstance(block, compat.Block):
      return self._translate_block(block)
    if isinstance(block, compat.Lambda):
      return self._translate_lambda(block)
    if isinstance(block, compat.Call):
      return self._translate_call(block)
    if isinstance(block, compat.Literal):
      value = tf.constant(block.value, block.type_signature.dtype)
      return lambda scope: value
    if isinstance(block, compat.CompiledComputation):
      kind = block.proto.WhichOneof('computation')
      if kind == 'tensorflow':
        function = self._functions.function(
          block.proto.tensorflow, block.type_signature
        )
        return lambda scope: lambda value=None: _call(function, value, scope)
      raise _not_run(f'a part of the kind {kind!r}')
    raise _not_run(repr(block.compact_representation()[:80]))

  def _translate_block(self, block):
    steps = [(name, self._translate(value)) for name, value in block.locals]
    result = self._translate(block.result)

    def run(scope):
      scope = dict(scope)
      for name, function in steps:
        scope[name] = function(scope)
      return result(scope)

    return run

  def _translate_lambda(self, block):
    name, result = block.parameter_name or '', self._translate(block.result)
    return lambda scope: lambda value=None: result({**scope, name: value})

  def _translate_call(self, block):
    argument = None
    if block.argument is not None:
      argument = self._translate(block.argument)
    if isinstance(block.function, compat.Intrinsic):
      uri = block.function.uri
      if uri not in _INTRINSICS:
        raise _not_run(f'the intrinsic {uri}')
      run, types = _INTRINSICS[uri], block.function.type_signature
      return lambda scope: run(argument(scope), types)
    function = self._translate(block.function)
    if argument is None:
      return lambda scope: function(scope)()
    return lambda scope: function(scope)(argument(scope))


def _not_run(what: str) -> NotImplementedError:
  return NotImplementedError(
    f'The computation has {what}, which this context does not run: write it in '
    "TensorFlow, or take kind='worker'."
  )


def _call(function, value, scope):
  with scope[_CALL].cancellable() as cancellation:
    return function(value, cancellation, scope[_SLOT])


def _run_at_clients(stage: _Stage, scope: dict, call: Call) -> None:
  """Computes what clients contribute, and adds the results to the scope."""
  own = [name for name, value in scope.items() if _has_each(value)]
  kept = {name: Each() for name in stage.kept}
  aggregations = {
    name: (value, *(other(scope) for other in others))
    for name, (value, others) in stage.aggregations
  }
  totals = {name: zero for name, (_, zero, *_) in aggregations.items()}

  def compute(client, slot):
    mine = {**scope, **{name: _pick(scope[name], client) for name in own}}
    mine[_SLOT] = slot
    try:
      for name, function in stage.at_clients:
        mine[name] = function(mine)
      return (
        {name: mine[name] for name in kept},
        {name: value(mine) for name, (value, *_) in aggregations.items()},
      )
    except tf.errors.OpError as error:
      place = f'client {client + 1} of {call.num_clients}'
      raise type(error)(
        error.node_def, error.op, f'At {place}: {error.message}'
      ) from error

  for values, contributions in call.of_clients(compute):
    for name, value in values.items():
      kept[name].append(value)
    for name, (_, _, accumulate, _, _) in aggregations.items():
      totals[name] = accumulate([totals[name], contributions[name]])
  scope.update(kept)
  for name, (*_, report) in aggregations.items():
    scope[name] = report(totals[name])


def _references(block) -> set[str]:
  found, todo = set(), [block]
  while todo:
    one = todo.pop()
    if isinstance(one, compat.Reference):
      found.add(one.name)
    todo.extend(one.children())
  return found


def _is_aggregation(block) -> bool:
  return (
    isinstance(block, compat.Call)
    and isinstance(block.function, compat.Intrinsic)
    and block.function.uri == 'federated_aggregate'
  )


def _lies_at_each_client(type_) -> bool:
  return (
    isinstance(type_, compat.FederatedType)
    and type_.placement is compat.CLIENTS
    and not type_.all_equal
  )


def _has_each(value) -> bool:
  return isinstance(value, Each) or (
    isinstance(value, list) and any(map(_has_each, value))
  )


def _pick(value, client: int):
  """Returns a value as one client has it."""
  if isinstance(value, Each):
    return value[client]
  if isinstance(value, list):
    return [_pick(one, client) for one in value]
  return value


def _select(argument, types):
  keys, _, server_value, select = argument
  element = types.result.member.element
  return data_set(
    [select([server_value, key]) for key in tf.unstack(keys)], element
  )


def _sequence_map(argument, types):
  function, rows = argument
  return data_set(
    [function(ingest(row, types.parameter[1].element)) for row in rows],
    types.result.element,
  )


def _sequence_reduce(argument, types):
  rows, total, accumulate = argument
  for row in rows:
    total = accumulate([total, ingest(row, types.parameter[0].element)])
  return total


# Of most intrinsics only the place matters, which is one here.
_itself = lambda argument, types: argument
_called = lambda argument, types: argument()
_applied = lambda argument, types: argument[0](argument[1])
# From the argument of an intrinsic and its type, at one place, to the result.
_INTRINSICS = {
  'federated_apply': _applied,
  'federated_broadcast': _itself,
  'federated_eval_at_clients': _called,
  'federated_eval_at_server': _called,
  'federated_map': _applied,
  'federated_map_all_equal': _applied,
  'federated_select': _select,
  'federated_value_at_clients': _itself,
  'federated_value_at_server': _itself,
  'federated_zip_at_clients': _itself,
  'federated_zip_at_server': _itself,
  'sequence_map': _sequence_map,
  'sequence_reduce': _sequence_reduce,
}


def data_set(rows: Iterable, element: compat.Type) -> tf.data.Dataset:
  """Returns a data set of rows, as of the module or as a caller has them."""
  return compat.make_data_set_from_elements(
    None, [egest(ingest(row, element), element) for row in rows], element
  )


def ingest(value, type_: compat.Type):
  """Returns what is computed with, from what a caller has.

  A value that is not of the type is a `TypeError` or `ValueError`.
  """
  if isinstance(type_, compat.FederatedType):
    if _lies_at_each_client(type_):
      return Each(ingest(one, type_.member) for one in value)
    return ingest(value, type_.member)
  if isinstance(type_, compat.StructType):
    elements = list(compat.iter_elements(type_))
    if isinstance(value, collections.abc.Mapping):
      values: Sequence = [value[name] for name, _ in elements]
    elif isinstance(value, list | tuple) and not hasattr(value, '_fields'):
      values = value
    else:
      values = list(compat.from_container(value))
    if len(values) != len(elements):
      raise TypeError(f'{len(values)} values are not of the type {type_}.')
    return [
      ingest(one, own) for one, (_, own) in zip(values, elements, strict=True)
    ]
  if isinstance(type_, compat.SequenceType):
    if isinstance(value, tf.data.Dataset):
      return value
    return data_set(value, type_.element)
  if isinstance(value, tf.Variable):
    value = value.read_value()
  if tf.is_tensor(value):
    return value
  return tensorflow_blocks.bare(tf.constant(value, tf.as_dtype(type_.dtype)))


def egest(value, type_: compat.Type):
  """Returns what a caller gets: structures of NumPy arrays and of data sets."""
  if isinstance(type_, compat.FederatedType):
    if isinstance(value, Each):
      return [egest(one, type_.member) for one in value]
    return egest(value, type_.member)
  if isinstance(type_, compat.StructType):
    return tff.structure.Struct(
      (name, egest(one, own))
      for (name, own), one in zip(
        compat.iter_elements(type_), value, strict=True
      )
    )
  if isinstance(type_, compat.SequenceType):
    return value
  return value.numpy()
