"""The two builders of a case, and the model and data that they get.

Clients hold scikit-learn's digits, each at most one minibatch: then there is
nothing to shuffle, and a round must give the weights that TFF's gives.
"""

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from tff_ssl.testing import tiny_problems

LearningProcess = tff.learning.templates.LearningProcess

BATCH_SIZE = 20
RATE = 0.1
NUM_PIXELS, NUM_CLASSES = 64, 10
NUM_WEIGHTS = (NUM_PIXELS + 1) * NUM_CLASSES
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, NUM_PIXELS], tf.float32),
  y=tf.TensorSpec([None, 1], tf.int32),
)


def ours(
  model: Any = None,
  *,
  rate: float = RATE,
  unweighted: bool = False,
  **arguments,
) -> LearningProcess:
  """Builds FedAvg, or FedProx with `proximal_strength`, of this library.

  Args:
    model: By default `model_fn`.
    rate: The clients' learning rate.
    unweighted: Whether clients count alike.
    **arguments: Arguments of the builder, under TFF's names or ours.
  """
  if unweighted:
    arguments['client_weighting'] = tff.learning.ClientWeighting.UNIFORM
  if 'client_optimizer_fn' not in arguments:
    arguments.setdefault('client_training', plan(rate))
  return tff_ssl.build_fed_avg(
    model_fn if model is None else model,
    views=tff_ssl.PlainViews(),
    **arguments,
  )


def stock(
  model: Any = None,
  *,
  rate: float = RATE,
  unweighted: bool = False,
  **arguments,
) -> LearningProcess:
  """Builds the same with TFF's own builders.

  Args:
    model: By default `model_fn`.
    rate: The clients' learning rate.
    unweighted: Whether clients count alike.
    **arguments: Arguments of the builder, under TFF's names.
  """
  algorithms = tff.learning.algorithms
  kind = 'unweighted' if unweighted else 'weighted'
  method = 'fed_prox' if 'proximal_strength' in arguments else 'fed_avg'
  return getattr(algorithms, f'build_{kind}_{method}')(
    model_fn if model is None else model,
    client_optimizer_fn=arguments.pop('client_optimizer_fn', sgd(rate)),
    **arguments,
  )


def sgd(rate: float) -> tff.learning.optimizers.Optimizer:
  """Returns SGD."""
  return tff.learning.optimizers.build_sgdm(rate)


def plan(rate: float = RATE, **more) -> tff_ssl.TrainingPlan:
  """Returns a plan of SGD in one pass over minibatches, where not told else."""
  return tff_ssl.TrainingPlan(
    **{
      'optimizer': sgd(rate),
      'batch_size': BATCH_SIZE,
      'epochs': 1,
      **more,
    }
  )


def keras_model() -> tf.keras.Model:
  """Returns a new softmax regression, without the softmax."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer(input_shape=(NUM_PIXELS,)),
      tf.keras.layers.Dense(NUM_CLASSES, kernel_initializer='zeros'),
    ]
  )


def model_fn() -> tff.learning.models.VariableModel:
  """Returns it as TFF's tutorials give a model."""
  return tff.learning.models.from_keras_model(
    keras_model(),
    input_spec=SPEC,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def functional_model(label: tf.DType = tf.int32) -> Any:
  """Returns it as a `tff.learning.models.FunctionalModel`."""
  spec = collections.OrderedDict(x=SPEC['x'], y=tf.TensorSpec([None, 1], label))
  return tff.learning.models.functional_model_from_keras(
    keras_model(),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=spec,
  )


class OwnModel(tff.learning.models.VariableModel):
  """The same as a class of a user's own, without Keras."""

  def __init__(self):
    self._kernel = tf.Variable(tf.zeros([NUM_PIXELS, NUM_CLASSES]))

  @property
  def trainable_variables(self):
    return [self._kernel]

  @property
  def non_trainable_variables(self):
    return []

  @property
  def local_variables(self):
    return []

  @property
  def input_spec(self):
    return SPEC

  def predict_on_batch(self, x, training=True):
    del training
    return tf.matmul(x, self._kernel)

  def forward_pass(self, batch_input, training=True):
    logits = self.predict_on_batch(batch_input['x'], training)
    labels = tf.reshape(batch_input['y'], [-1])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tff.learning.models.BatchOutput(
      loss=tf.reduce_mean(losses),
      predictions=logits,
      num_examples=tf.size(labels),
    )

  def report_local_unfinalized_metrics(self):
    return collections.OrderedDict()

  def metric_finalizers(self):
    return collections.OrderedDict()

  def reset_metrics(self):
    """Has none."""


def examples(
  first: int, size: int = BATCH_SIZE
) -> collections.OrderedDict[str, np.ndarray]:
  """Returns digits: `x` as vectors of pixels in [0, 1], and `y`."""
  images, labels = tiny_problems.load_digits()
  part = slice(first, first + size)
  return collections.OrderedDict(
    x=images[part].reshape(size, NUM_PIXELS), y=labels[part, np.newaxis]
  )


def client(first: int, size: int = BATCH_SIZE) -> tf.data.Dataset:
  """Returns the data of a client."""
  return tf.data.Dataset.from_tensor_slices(examples(first, size)).batch(
    BATCH_SIZE
  )


@functools.cache
def clients() -> Sequence[tf.data.Dataset]:
  """Returns those of a round. They differ in size, so that weights matter."""
  return (client(0), client(20), client(40, size=10))


@functools.cache
def process() -> LearningProcess:
  """Returns a process of ours that cases share."""
  return ours()


@functools.cache
def stock_process() -> LearningProcess:
  """Returns the same of TFF."""
  return stock()


def train(
  trained: LearningProcess,
  data: Sequence[tf.data.Dataset] | None = None,
  rounds: int = 2,
  state: Any = None,
) -> tff.learning.templates.LearningProcessOutput:
  """Returns what the last of some rounds gives.

  Args:
    trained: A process.
    data: By default `clients()`.
    rounds: How many.
    state: By default the initial one.
  """
  state = trained.initialize() if state is None else state
  for _ in range(rounds):
    output = trained.next(state, list(clients() if data is None else data))
    state = output.state
  return output


def weights_after(
  trained: LearningProcess,
  data: Sequence[tf.data.Dataset] | None = None,
  rounds: int = 2,
) -> list[np.ndarray]:
  """Returns the trainable weights after some rounds, as `train` takes them."""
  state = train(trained, data, rounds).state
  return list(trained.get_model_weights(state).trainable)


@functools.cache
def mean_weights(unweighted: bool = False) -> list[np.ndarray]:
  """Returns those of two rounds of ours with the plain mean.

  Args:
    unweighted: Whether clients count alike.
  """
  return weights_after(ours(unweighted=True) if unweighted else process())


@functools.cache
def robust_weights() -> list[np.ndarray]:
  """Returns those of two rounds of ours with the robust aggregator."""
  return weights_after(ours(model_aggregator=tff.learning.robust_aggregator()))


@functools.cache
def secure_process() -> LearningProcess:
  """Returns one of ours with secure sums of models and metrics."""
  return ours(
    model_aggregator=tff.learning.secure_aggregator(),
    metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
  )


@functools.cache
def secure_form() -> tff.backends.mapreduce.MapReduceForm:
  """Returns its form, which takes seconds to make."""
  return tff.backends.mapreduce.get_map_reduce_form_for_computation(
    secure_process().next
  )


def count_calls(build: Callable[..., Any], **arguments) -> int:
  """Returns how often a builder calls a `model_fn`.

  Args:
    build: `ours` or `stock`.
    **arguments: What it gets beside the model.
  """
  calls = []

  def counted():
    calls.append(None)
    return model_fn()

  build(counted, **arguments)
  return len(calls)
