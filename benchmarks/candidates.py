"""The ways to run a round that are compared; all do the same training.

A candidate is a function without arguments that runs one round and returns when
its result is there. In `build_all`, every client takes the same number of steps
of plain SGD over its own examples, and the server averages. What runs on TFF
runs in this process, but for those in TFF's worker.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import workloads
from datasets.store import client_store
from tff_ssl import augmentation, compat, objectives
from tff_ssl.algorithms import PROCESSES
from tff_ssl.models import functional
from tff_ssl.simulation import client_reader, client_sampling, contexts
from tff_ssl.templates import client_data

Round = Callable[[], None]
Rounds = dict[str, Round]
BuildProcess = Callable[
  [client_data.ClientDataSpec], tff.learning.templates.LearningProcess
]


def build_all(
  workload: workloads.Workload, store: client_store.ClientStore
) -> Rounds:
  """Returns the candidates by name; those with CRL where images are images."""
  # Stock TFF before the bare loop: a Keras model that is made before stock TFF
  # makes its own cannot be traced any more.
  candidates = {
    'ours': build_ours(workload, store),
    'worker': build_ours(workload, store, contexts.WORKER),
    'stock_tff': build_stock_tff(workload, store),
    'bare_loop': build_bare_loop(workload, store),
  }
  if workload.has_augmentation:
    candidates['crl'] = build_crl(workload, store, threshold=0.0)
    candidates['crl_unsure'] = build_crl(workload, store, threshold=1.01)
  return candidates


def build_ours(
  workload: workloads.Workload,
  store: client_store.ClientStore,
  kind: str = contexts.IN_PROCESS,
) -> Round:
  """This library's supervised FedAvg: keys in, the store read inside TFF."""
  build = fed_avg(workload, augmentation.PlainViews())
  return rounds_over_store(build, store, workload.clients, kind=kind)


def build_crl(
  workload: workloads.Workload,
  store: client_store.ClientStore,
  threshold: float,
) -> Round:
  """The same with CRL at clients: two views, augmentation included."""
  views = augmentation.ImageViews(mean=(0.0,), stddev=(1.0,), flip=False)
  objective = objectives.ConsistencyRegularization(views, threshold)
  build = fed_avg(workload, views, objective)
  return rounds_over_store(build, store, workload.clients)


def fed_avg(
  workload: workloads.Workload, views, objective=None
) -> BuildProcess:
  """Our FedAvg, supervised where no other objective is given."""
  return lambda data_spec: PROCESSES['fedavg'].build(
    functional.from_keras(workload.build_model()),
    data_spec=data_spec,
    views=views,
    client_objective=objective,
    client_optimizer=_sgd(),
    batch_size=workload.batch_size,
    local_steps=workload.steps,
  )


def rounds_of(
  name: str,
  model: str,
  workload: workloads.Steps,
  store: client_store.ClientStore,
  kind: str = contexts.IN_PROCESS,
  **arguments,
) -> Round:
  """Rounds of one of our processes, without augmentation by default."""

  def build(data_spec):
    given = {
      'views': augmentation.PlainViews(),
      'batch_size': workload.batch_size,
      'local_steps': workload.steps,
      **arguments,
    }
    return PROCESSES[name].build(
      workloads.build_model(model), data_spec=data_spec, **given
    )

  return rounds_over_store(build, store, workload.clients, kind=kind)


def rounds_over_store(
  build_process: BuildProcess,
  store: client_store.ClientStore,
  clients: int,
  constants: Mapping[str, np.ndarray] | None = None,
  kind: str = contexts.IN_PROCESS,
) -> Round:
  """Rounds of a process of this library, as `process_over_store` has it.

  What computes is one of `contexts.KINDS`.
  """
  process, keys = process_over_store(build_process, store, clients, constants)
  return _rounds_of(process, keys, kind)


def process_over_store(
  build_process: BuildProcess,
  store: client_store.ClientStore,
  clients: int,
  constants: Mapping[str, np.ndarray] | None = None,
) -> tuple[tff.learning.templates.LearningProcess, Iterator]:
  """Returns a process that reads its clients inside TFF, and keys of rounds.

  Args:
    build_process: From the type of client data to the process.
    store: Its clients are drawn anew for each round.
    clients: How many in a round.
    constants: `class_priors` `float32 [K, M, d]` and `set_shares` `float32
      [K, M]`, where labels are indices of sets.
  """
  data_spec = client_data.ClientDataSpec(
    client_store.element_spec(store),
    in_context=True,
    num_clients=store.num_clients,
    priors_shape=constants and constants['class_priors'].shape[1:],
  )
  reader = client_store.client_reader(store, **(constants or {}))
  process = client_reader.compose_with_reader(build_process(data_spec), reader)
  keys = (
    client_sampling.sample_keys(
      num_clients=store.num_clients,
      clients_per_round=clients,
      num_groups=1,
      seed=0,
      round_num=round_num,
    )
    for round_num in itertools.count()
  )
  return process, keys


def build_stock_tff(
  workload: workloads.Workload, store: client_store.ClientStore
) -> Round:
  """TFF's own FedAvg, fed with datasets as its tutorials do."""
  return rounds_of_stock_tff(
    workload.build_model,
    store,
    workload.clients,
    batch_size=workload.batch_size,
    epochs=1,
    client_optimizer=_sgd(),
  )


def rounds_of_stock_tff(
  build_model: Callable[[], tf.keras.Model],
  store: client_store.ClientStore,
  clients: int,
  *,
  batch_size: int,
  epochs: int,
  client_optimizer: tff.learning.optimizers.Optimizer,
) -> Round:
  """Rounds of TFF's own weighted FedAvg.

  Args:
    build_model: Returns a new classifier.
    store: Its first clients take part in every round.
    clients: How many.
    batch_size: Examples in a minibatch.
    epochs: Passes of a client over its examples.
    client_optimizer: What they train with.
  """

  def dataset(part):
    examples = (part['x'].numpy(), part['true_y'].numpy())
    return (
      tf.data.Dataset.from_tensor_slices(examples)
      .shuffle(len(part['true_y']))
      .repeat(epochs)
      .batch(batch_size)
      .map(lambda x, y: (tf.cast(x, tf.float32) / 255, y))
    )

  datasets = [dataset(part) for part in _parts(store, clients)]

  def model_fn():
    return tff.learning.models.from_keras_model(
      build_model(), loss=_loss(), input_spec=datasets[0].element_spec
    )

  process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn, client_optimizer
  )
  return _rounds_of(process, itertools.repeat(datasets), contexts.IN_PROCESS)


def _rounds_of(process, arguments, kind) -> Round:
  context = contexts.build_context(kind)
  stack = compat.get_context_stack()
  with stack.install(context):
    state = process.initialize()

  def run_round():
    nonlocal state
    with stack.install(context):
      state, _ = process.next(state, next(arguments))

  return run_round


def build_bare_loop(
  workload: workloads.Workload, store: client_store.ClientStore
) -> Round:
  """Plain TensorFlow, one client after another; nothing but the arithmetic."""
  model = workload.build_model()
  loss_fn = _loss()
  variables = model.trainable_variables
  clients = [
    (part['x'], part['true_y']) for part in _parts(store, workload.clients)
  ]
  size = workload.batch_size

  @tf.function
  def train(start, images, labels):
    for variable, value in zip(variables, start, strict=True):
      variable.assign(value)
    for step in tf.range(workload.steps):
      cut = slice(step * size, (step + 1) * size)
      x = tf.cast(images[cut], tf.float32) / 255
      with tf.GradientTape() as tape:
        loss = loss_fn(labels[cut], model(x, training=True))
      gradients = tape.gradient(loss, variables)
      for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign_sub(workloads.LEARNING_RATE * gradient)
    return [variable.read_value() for variable in variables]

  weights = [variable.numpy() for variable in variables]

  def run_round():
    nonlocal weights
    results = [train(weights, *client) for client in clients]
    weights = [np.mean(values, axis=0) for values in zip(*results, strict=True)]

  return run_round


def _parts(store, clients):
  return [
    client_store.client_dataset(store, i).get_single_element()
    for i in range(clients)
  ]


def _sgd():
  return tff.learning.optimizers.build_sgdm(workloads.LEARNING_RATE)


def _loss():
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
