"""On which device operations run; TensorFlow's registry knows its GPU kernels.

The packages that we install hold the kernels for GPUs, too, whether there is a
GPU or not.
"""

import costs
import pytest
import pythons
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.framework import kernels

import tff_ssl
from tff_ssl import algorithms, testing
from tff_ssl.simulation import in_process_context, tensorflow_blocks
from tff_ssl.templates import client_data

# The functions of one step of local training have these in their names.
_OF_STEPS = ('take_step', 'while_body')


def _fits(kernel, node):
  """Whether a kernel computes what a node's types say."""
  for constraint in kernel.constraint:
    attr = node.attr[constraint.name]
    types = [attr.type] if attr.type else attr.list.type
    if not set(types) <= set(constraint.allowed_values.list.type):
      return False
  return True


def _needs_the_cpu(node):
  registered = kernels.get_registered_kernels_for_op(node.op).kernel
  return bool(registered) and not any(
    kernel.device_type in ('GPU', 'DEFAULT') and _fits(kernel, node)
    for kernel in registered
  )


def _called(node, functions):
  """The functions that a node calls, directly or as a branch or a body."""
  names = [node.op]
  for attr in node.attr.values():
    names += [attr.func.name, *(one.name for one in attr.list.func)]
  return functions.keys() & names


def _nodes_of_steps(libraries):
  for library in libraries:
    functions = {one.signature.name: one for one in library}
    todo, seen = (
      {name for name in functions if any(one in name for one in _OF_STEPS)},
      set(),
    )
    while todo:
      name = todo.pop()
      seen.add(name)
      for node in functions[name].node_def:
        yield node
        todo |= _called(node, functions) - seen


def _nodes(process, monkeypatch):
  """The operations of steps of a process's round."""
  libraries = []
  register = tensorflow_blocks._register

  def note(owner, library):
    libraries.append(list(library))
    register(owner, library)

  monkeypatch.setattr(tensorflow_blocks, '_register', note)
  in_process_context.InProcessContext()._program(process.next)
  return list(_nodes_of_steps(libraries))


def _names_of_those_for_the_cpu(nodes):
  return {node.op for node in nodes if _needs_the_cpu(node)}


@pytest.mark.parametrize(
  'name', costs.rest_in('parts', algorithms.PROCESSES, keep=0)
)
def test_no_operation_of_a_step_needs_the_cpu(name, monkeypatch):
  process = testing.TinyProblem(algorithms.PROCESSES[name]).build()
  nodes = _nodes(process, monkeypatch)
  assert len(nodes) > 100
  assert not _names_of_those_for_the_cpu(nodes)


@pytest.mark.parametrize('side', costs.rest_in('parts', [28, 27], dear=True))
def test_bytes_are_cut_and_augmented_anywhere(side, monkeypatch):
  layers = tf.keras.layers
  network = tf.keras.Sequential(
    [layers.Input((side, side, 3)), layers.Flatten(), layers.Dense(2)]
  )
  views = tff_ssl.ImageViews(mean=(0.5,) * 3, stddev=(0.5,) * 3)
  process = algorithms.PROCESSES['fedavg'].build(
    tff_ssl.from_keras(network),
    data_spec=client_data.ClientDataSpec(
      client_data.image_element_spec((side, side, 3))
    ),
    views=views,
    client_objective=tff_ssl.ConsistencyRegularization(views, 0.5),
    client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
    batch_size=4,
    local_steps=2,
  )
  found = _names_of_those_for_the_cpu(_nodes(process, monkeypatch))
  # Bytes of an image that are no whole words.
  assert found == ({'GatherV2'} if side % 4 else set())


@pytest.mark.parts
def test_a_computation_runs_on_the_device_that_is_named():
  result = pythons.run('-c', _ON_THE_SECOND)
  assert result.stdout.split() == ['CPU:0', '7.0', 'CPU:1', '7.0'], result


# On two devices that share this machine's cores. What a GPU cannot do is left
# to TensorFlow, which moves such operations to the CPU by itself.
_ON_THE_SECOND = """
import numpy as np, tensorflow as tf, tensorflow_federated as tff
from tff_ssl import compat
from tff_ssl.simulation import tensorflow_blocks

tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices('CPU')[0],
  [tf.config.LogicalDeviceConfiguration()] * 2,
)

@tff.tensorflow.computation(np.float32)
def doubled_and_one_more(x):
  total = tf.Variable(x)
  with tf.control_dependencies([total.initializer]):
    total = total.assign_add(x)
  return tf.while_loop(lambda y: y < 7.0, lambda y: y + 1.0, [total])[0]

block = doubled_and_one_more.to_compiled_building_block()
for device in ('/CPU:0', '/CPU:1'):
  function = tensorflow_blocks.TensorFlowBlocks(1, device).function(
    block.proto.tensorflow, block.type_signature
  )
  value = function(tf.constant(3.0), compat.CancellationManager(), 0)
  print(value.device.split('device:')[1], value.numpy())
"""
