"""What FedUL's transition layer costs a client.

A supervised client against one of FedUL that takes its labels for the indices
of sets: same network, data, steps and optimizer, so that the difference is the
layer and its loss. It is less than what such rounds vary by, so the layer is
timed by itself, too, beside a supervised gradient of the network.
"""

import collections
import dataclasses
import timeit

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import candidates, measurement, workloads
from tff_ssl import augmentation, objectives
from tff_ssl.algorithms import PROCESSES
from tff_ssl.templates import local_training

_SEED = (0, 0)
# Calls that one timing takes, long enough for the clock.
_CALLS = 50
_MODEL = 'small_cnn'
_LEARNING_RATE = 1e-4


@dataclasses.dataclass(frozen=True)
class FedUL:
  """The sizes of a round; by default, the paper's minibatch and most sets.

  Attributes:
    clients: C = K, all clients take part.
    steps: T, one pass over a client's examples.
    batch_size: B, examples in a minibatch.
    sets: M, at least as many as classes.
  """

  clients: int = 2
  steps: int = 8
  batch_size: int = 128
  sets: int = 40


def build_all(workload: FedUL, folder: str) -> candidates.Rounds:
  """Returns the candidates by name: `supervised` and `fedul`."""
  store = workloads.build_store(
    workload.clients, workload.steps * workload.batch_size, folder
  )

  def rounds(name, constants=None, **settings):
    def build(data_spec):
      return PROCESSES[name].build(
        workloads.build_model(_MODEL),
        data_spec=data_spec,
        views=augmentation.PlainViews(),
        client_optimizer=tff.learning.optimizers.build_adam(_LEARNING_RATE),
        batch_size=workload.batch_size,
        local_epochs=1,
        **settings,
      )

    return candidates.rounds_over_store(
      build, store, workload.clients, constants
    )

  return {
    'supervised': rounds('fedavg'),
    'fedul': rounds(
      'fedul', _constants(workload, store.num_clients), l1_weight=0.0
    ),
  }


def time_layer(workload: FedUL, repetitions: int) -> dict[str, float]:
  """Times the layer and its loss alone, beside a gradient of the network.

  Of some repetitions, the best counts.

  Returns:
    `step_ms`, a supervised minibatch forth and back through the network;
    `layer_ms`, by how much FedUL's objective on given logits takes longer than
    the supervised one; and `layer_over_step`, their ratio.
  """
  model, views = workloads.build_model(_MODEL), augmentation.PlainViews()
  supervised, sets = (
    objectives.Supervised(views),
    objectives.SurrogateSets(views),
  )
  rng = np.random.default_rng(0)
  size = workload.batch_size
  images = rng.integers(0, 256, (size, *workloads.INPUT_SHAPE), np.uint8)
  labels = rng.integers(0, workloads.NUM_CLASSES, size, np.int32)
  constants = {
    name: tf.constant(table[0])
    for name, table in _constants(workload, num_clients=1).items()
  }
  batch = {
    'x': tf.constant(images),
    'y': tf.constant(labels),
    'true_y': tf.constant(labels),
    **constants,
  }
  logits = tf.constant(
    rng.normal(size=(size, workloads.NUM_CLASSES)), tf.float32
  )
  weights = tf.nest.map_structure(tf.constant, model.initial_weights(0))

  def step(weights, batch):
    return local_training.objective_gradient(
      model, supervised, weights, batch, weights, tf.constant(_SEED)
    )

  def on_logits(objective):
    def gradient(logits, batch):
      with tf.GradientTape() as tape:
        tape.watch(logits)
        loss, metrics = objective(
          lambda *unused, **unused_too: logits, batch, None, tf.constant(_SEED)
        )
      return tape.gradient(loss, logits), metrics

    return gradient

  seconds = {
    name: _best_of(tf.function(call), (given, batch), repetitions)
    for name, call, given in (
      ('step', step, weights),
      ('supervised', on_logits(supervised), logits),
      ('sets', on_logits(sets), logits),
    )
  }
  layer = seconds['sets'] - seconds['supervised']
  return {
    'step_ms': round(1000 * seconds['step'], 3),
    'layer_ms': round(1000 * layer, 3),
    'layer_over_step': round(layer / seconds['step'], 4),
  }


def _best_of(call, arguments, repetitions) -> float:
  """Returns the seconds of a call in the best of some series of calls."""
  call(*arguments)
  series = timeit.repeat(
    lambda: call(*arguments), number=_CALLS, repeat=repetitions
  )
  return min(series) / _CALLS


def _constants(workload, num_clients: int):
  """Returns random class priors, and shares that give each set examples."""
  rng = np.random.default_rng(0)
  priors = rng.dirichlet(np.ones(workloads.NUM_CLASSES), workload.sets)
  shares = np.full((num_clients, workload.sets), 1 / workload.sets)
  return collections.OrderedDict(
    class_priors=np.tile(priors, (num_clients, 1, 1)).astype(np.float32),
    set_shares=shares.astype(np.float32),
  )


SECTION = measurement.Section(
  FedUL(),
  build_all,
  {'fedul_over_supervised': ('fedul', 'supervised')},
  time_layer,
)
