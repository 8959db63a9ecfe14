"""Gradient diversity of a process of this library, from its parts."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_ssl.metrics import gradient_diversity
from tff_ssl.templates import composition, full_gradient
from tff_ssl.templates.server import finalizers


def build_process_diversity(
  process: composition.ComposedProcess,
) -> tff.Computation:
  """Builds the measurement of `gradient_diversity` for a process.

  A client's gradient is that of its objective on all its data at the weights
  that it would start a round from; the server's, where it trains, that of the
  supervised loss on its labelled data. Of several server replicas the first one
  is the server.

  Args:
    process: As a builder of `tff_ssl.algorithms` returns it.

  Returns:
    The `tff.Computation` of `build_gradient_diversity`; `measured_state` gives
    its first argument.

  Raises:
    TypeError: If the process was not built by this library.
  """
  if isinstance(process, composition.ComposedProcess) and process.parts is None:
    raise TypeError(
      'The clients of this process train more than one model or objective, so '
      'that they have no single gradient to measure: choose another process.'
    )
  if not isinstance(process, composition.ComposedProcess):
    raise TypeError(
      f'The process is a {type(process).__name__}, which does not know its '
      'parts: give one as a builder of tff_ssl.algorithms returns it, before '
      'it is composed with a reader.'
    )
  parts = process.parts

  def client_gradient(task):
    return full_gradient.gradient_of_training(
      parts.training,
      parts.start_of(task),
      task.examples,
      seed=task.client_seed,
      constants=task.constants,
    )

  server = {}
  if parts.server is not None:

    def server_gradient(task):
      return full_gradient.gradient_of_training(
        parts.server.training,
        parts.server_start(task.weights),
        parts.server.read_examples(),
        seed=task.server_seed,
      )

    def server_update(task):
      start = parts.server_start(task.weights)
      result = parts.server.run(
        start, task.optimizer_state, seed=task.seed, round_num=task.round
      )
      return tf.nest.map_structure(
        tf.subtract,
        parts.server.first_replica(result.weights).trainable,
        start.trainable,
      )

    state_type = process.initialize.type_signature.result.member
    server = {
      'server_gradient': server_gradient,
      'server_update': server_update,
      'server_optimizer_type': finalizers.innermost(state_type['finalizer'])[
        'optimizer'
      ],
    }

  return gradient_diversity.build_gradient_diversity(
    local_update=parts.local_update,
    client_gradient=client_gradient,
    data_spec=parts.data_spec,
    weights_type=process.weights_type,
    initial_hparams=parts.training.initial_hparams,
    num_groups=parts.num_groups,
    **server,
  )


def measured_state(
  process: composition.ComposedProcess, state, *, round_num: int, seed: int
) -> collections.OrderedDict:
  """Returns what the measurement takes of a process's state.

  Args:
    process: The process that is measured.
    state: Its state.
    round_num: Rounds done.
    seed: The run's seed.
  """
  fields = collections.OrderedDict(
    weights=state.global_model_weights,
    round=np.int32(round_num),
    seed=np.int32(seed),
  )
  if process.parts.server is not None:
    fields['server_optimizer'] = finalizers.innermost(state.finalizer)[
      'optimizer'
    ]
  return fields
