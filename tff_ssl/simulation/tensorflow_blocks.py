"""TensorFlow blocks of TFF computations as functions of this process.

A block, a graph with the names of what goes in and comes out, becomes one
function of TensorFlow's eager runtime. The runtime places its ops, so that they
run on a GPU where there is one.

Values are as in `tff_ssl.simulation.interpreter`: a tensor is a `tf.Tensor`, a
structure a list, a sequence a `tf.data.Dataset`.
"""

import collections
import copy
import hashlib
import threading
import weakref

import tensorflow as tf

from tff_ssl import compat

# `ResourceHandle::ANONYMOUS_NAME` of TensorFlow: with this name, each call of a
# function has variables of its own, so that clients share none.
_ANONYMOUS = b'cd2c89b7-88b7-44c8-ad83-06c2a9158347'

_CONFIG = compat.ConfigProto(allow_soft_placement=True)
# Grappler takes time in the first round, and works on functions of data sets
# anew at each call. Later rounds gain a few hundredths from it.
_CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True
_ATTRIBUTES = 'executor_type', '', 'config_proto', _CONFIG.SerializeToString()
# Their kernels have one thread each, and a function one kernel for all calls.
_ONE_AT_A_TIME = ('ReduceDataset', 'DatasetToSingleElement')
_NO_ATTRIBUTES: dict = {}


def bare(tensor: tf.Tensor) -> tf.Tensor:
  """Returns an eager tensor that leaves nothing in memory when it is gone.

  In Python 3.11, those of TensorFlow 2.14 never free the room for attributes of
  their own. So all have the same ones, which are none.
  """
  tensor.__dict__ = _NO_ATTRIBUTES
  return tensor


class TensorFlowBlocks:
  """Makes blocks to functions; equal blocks share one as long as it lives.

  As many calls may run at a time as there are slots, each in one of its own.
  """

  def __init__(self, num_slots: int, device: str | None = None):
    self._num_slots, self._device = num_slots, device
    self._functions = weakref.WeakValueDictionary()

  def function(self, proto, type_: compat.FunctionType) -> 'BlockFunction':
    """Returns the function of a block, TFF's `tensorflow` field of it."""
    text = proto.SerializeToString(deterministic=True)
    # Names of a structure's elements are not in the text.
    key = hashlib.sha256(text).digest(), str(type_)
    function = self._functions.get(key)
    if function is None:
      function = BlockFunction(proto, type_, self._num_slots, self._device)
      self._functions[key] = function
    return function


class BlockFunction:
  """A TensorFlow block as a function from a value to a value."""

  def __init__(
    self,
    proto,
    type_: compat.FunctionType,
    num_slots: int,
    device: str | None,
  ):
    self._device = device
    self._binding, self._type = proto.result, type_.result
    feeds = _names(proto.parameter) if type_.parameter is not None else []
    fetches = _names(proto.result)
    graph_def = _cut(proto, fetches)
    kept = {node.name for node in graph_def.node}
    # A parameter that no result needs has been cut off.
    self._used = [i for i, name in enumerate(feeds) if _node(name) in kept]
    self._num_results = len(fetches)
    function_def = _as_function(
      graph_def,
      [feeds[i] for i in self._used],
      fetches,
      token=proto.session_token_tensor_name,
    )
    # All functions of the runtime share one name space.
    text = function_def.SerializeToString(deterministic=True)
    name = f'tff_block_{hashlib.sha256(text).hexdigest()[:24]}'
    library = graph_def.library.function
    ops = {node.op for node in graph_def.node}
    for function in library:
      ops.update(node.op for node in function.node_def)
    num_copies = num_slots if ops.intersection(_ONE_AT_A_TIME) else 1
    self._names = [f'{name}_{number}' for number in range(num_copies)]
    copies = [copy.deepcopy(function_def) for _ in self._names]
    for own, own_name in zip(copies, self._names, strict=True):
      own.signature.name = own_name
    _register(self, [*library, *copies])

  def __call__(
    self, value, cancellation: compat.CancellationManager, slot: int
  ):
    """Calls the function."""
    flat = []
    _flatten(value, flat)
    with tf.device(self._device):
      results = compat.execute_with_cancellation(
        self._names[slot % len(self._names)],
        self._num_results,
        [flat[i] for i in self._used],
        _ATTRIBUTES,
        compat.eager_context(),
        cancellation,
      )
    return _pack(self._binding, self._type, map(bare, results))


# How many `BlockFunction`s need a function of the runtime, by its name; and
# names that one of these needs no more.
_needed_by = collections.Counter()
_not_needed = collections.deque()
_registering = threading.Lock()


def _register(owner, library) -> None:
  """Adds functions to the runtime; removes those whose owners are gone."""
  runtime = compat.eager_context()
  names = [function.signature.name for function in library]
  # Python may end an owner at any moment, also amid these lines. So its end
  # only notes the names.
  weakref.finalize(owner, _not_needed.extend, names).atexit = False
  with _registering:
    for function, name in zip(library, names, strict=True):
      if not _needed_by[name]:
        runtime.add_function_def(function)
      _needed_by[name] += 1
    while _not_needed:
      name = _not_needed.popleft()
      _needed_by[name] -= 1
      if not _needed_by[name]:
        del _needed_by[name]
        runtime.remove_function(name)


def _cut(proto, fetches):
  """Returns the part of a block's graph that its results need."""
  graph_def = compat.unpack_graph_def(proto.graph_def)
  init = proto.initialize_op
  needed = _needed_for(graph_def, [*fetches, *([init] if init else [])])
  nodes = [node for node in graph_def.node if node.name in needed]
  graph_def.ClearField('node')
  graph_def.node.extend(nodes)
  _rename_functions(graph_def)
  for node in graph_def.node:
    # It may be wanted on the device of a node that has been cut off; the
    # runtime places it by what its inputs are.
    node.attr.pop('_class', None)
    if node.op == 'VarHandleOp':
      node.attr['shared_name'].s = _ANONYMOUS
    elif node.op in ('HashTableV2', 'MutableHashTableV2'):
      node.attr['shared_name'].s = node.name.encode()
  if init:
    _let_wait_for(graph_def, init)
  return graph_def


def _needed_for(graph_def, names) -> set[str]:
  """Returns the nodes that tensors or nodes of these names need."""
  inputs = {node.name: node.input for node in graph_def.node}
  found, todo = set(), [_node(name) for name in names]
  while todo:
    name = todo.pop()
    if name not in found:
      found.add(name)
      todo.extend(_node(one) for one in inputs[name])
  return found


def _as_function(graph_def, feeds, fetches, token):
  """Returns a graph as a `FunctionDef`."""
  nodes = {node.name: node for node in graph_def.node}
  variables = [n.name for n in graph_def.node if n.op == 'VarHandleOp']
  # What waits for a parameter would wait for the placeholder that it replaces.
  replaced = {f'^{_node(name)}' for name in feeds}
  for node in graph_def.node:
    inputs = [name for name in node.input if name not in replaced]
    node.ClearField('input')
    node.input.extend(inputs)
  with tf.Graph().as_default() as graph:
    inputs = [
      tf.compat.v1.placeholder(
        nodes[_node(name)].attr['dtype'].type,
        tf.TensorShape(nodes[_node(name)].attr['shape'].shape),
      )
      for name in feeds
    ]
    fed = dict(zip(feeds, inputs, strict=True))
    if token and _node(token) in nodes:
      fed[token] = tf.constant('')
    returned = tf.import_graph_def(
      graph_def, fed, [*fetches, *(f'{name}:0' for name in variables)], name=''
    )
    results, handles = returned[: len(fetches)], returned[len(fetches) :]
    if handles:
      # Nothing else frees what only a call knows of.
      with tf.control_dependencies(results):
        freed = [
          tf.raw_ops.DestroyResourceOp(resource=one, ignore_lookup_error=True)
          for one in handles
        ]
      with tf.control_dependencies(freed):
        results = [tf.identity(one) for one in results]
    # A tensor may be two results, and an input one.
    results = [tf.identity(one) for one in results]
    return compat.graph_to_function_def(
      graph,
      graph.get_operations(),
      inputs,
      results,
    )


def _names(binding) -> list[str]:
  """Returns the names of the tensors of a binding, in their order."""
  kind = binding.WhichOneof('binding')
  if kind == 'tensor':
    return [binding.tensor.tensor_name]
  if kind == 'sequence':
    return [binding.sequence.variant_tensor_name]
  return [name for one in binding.struct.element for name in _names(one)]


def _node(name: str) -> str:
  return name.removeprefix('^').partition(':')[0]


def _rename_functions(graph_def) -> None:
  """Gives the graph's functions names that only equal ones have.

  Graphs of other computations have functions of the same names.
  """
  library = graph_def.library
  # Gradients as functions serve to differentiate a graph, and not to run it.
  library.ClearField('gradient')
  if not library.function:
    return
  text = library.SerializeToString(deterministic=True)
  suffix = f'__{hashlib.sha256(text).hexdigest()[:16]}'
  names = {function.signature.name for function in library.function}

  def rename(nodes):
    for node in nodes:
      if node.op in names:
        node.op += suffix
      for attr in node.attr.values():
        for function in (attr.func, *attr.list.func):
          if function.name in names:
            function.name += suffix

  rename(graph_def.node)
  for function in library.function:
    function.signature.name += suffix
    rename(function.node_def)


def _let_wait_for(graph_def, init: str) -> None:
  """Lets all that uses a variable or a table wait for the initialization."""
  before = _needed_for(graph_def, [init])
  handles = {
    node.name
    for node in graph_def.node
    if node.name in before and node.op.endswith(('HandleOp', 'TableV2'))
  }
  for node in graph_def.node:
    uses = any(_node(one) in handles for one in node.input)
    if node.name not in before and uses:
      node.input.append(f'^{_node(init)}')


def _flatten(value, flat: list) -> None:
  """Adds the tensors of a value to a list, in their order."""
  if isinstance(value, list):
    for one in value:
      _flatten(one, flat)
  elif isinstance(value, tf.data.Dataset):
    flat.append(tf.data.experimental.to_variant(value))
  elif value is not None:
    flat.append(value)


def _pack(binding, type_, results):
  """Returns the value that results form."""
  kind = binding.WhichOneof('binding')
  if kind == 'tensor':
    return next(results)
  if kind == 'sequence':
    return tf.data.experimental.from_variant(
      next(results), compat.type_to_tf_structure(type_.element)
    )
  types = [one for _, one in compat.iter_elements(type_)]
  return [
    _pack(one, own, results)
    for one, own in zip(binding.struct.element, types, strict=True)
  ]
