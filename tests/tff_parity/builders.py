"""The two builders of a case, and the model and data that they get.

Clients hold scikit-learn's digits, each at most one minibatch: then there is
nothing to shuffle, and a round must give the weights that TFF's gives.
"""

import collections
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from tff_ssl.testing import assertions, tiny_problems

BATCH_SIZE = 20
RATE = 0.1
NUM_PIXELS, NUM_CLASSES = 64, 10
NUM_WEIGHTS = (NUM_PIXELS + 1) * NUM_CLASSES
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, NUM_PIXELS], tf.float32),
  y=tf.TensorSpec([None, 1], tf.int32),
)
sgd = tff.learning.optimizers.build_sgdm


def ours(model=None, *, rate=RATE, unweighted=False, **arguments):
  """Builds FedAvg, or FedProx with `proximal_strength`, of this library.

  Arguments have TFF's names or ours; clients that are `unweighted` count alike.
  """
  if unweighted:
    arguments['client_weighting'] = tff.learning.ClientWeighting.UNIFORM
  if 'client_optimizer_fn' not in arguments:
    arguments.setdefault('client_training', plan(optimizer=sgd(rate)))
  return tff_ssl.build_fed_avg(
    model_fn if model is None else model,
    views=tff_ssl.PlainViews(),
    **arguments,
  )


def stock(model=None, *, rate=RATE, unweighted=False, **arguments):
  """Builds the same with TFF's own builders; arguments have TFF's names."""
  kind = 'unweighted' if unweighted else 'weighted'
  method = 'fed_prox' if 'proximal_strength' in arguments else 'fed_avg'
  arguments.setdefault('client_optimizer_fn', sgd(rate))
  build = getattr(tff.learning.algorithms, f'build_{kind}_{method}')
  return build(model_fn if model is None else model, **arguments)


def plan(**more):
  """Returns a plan of SGD in one pass over minibatches, where not told else."""
  defaults = {'optimizer': sgd(RATE), 'batch_size': BATCH_SIZE, 'epochs': 1}
  return tff_ssl.TrainingPlan(**{**defaults, **more})


def secure(**how):
  """Returns arguments with which models and metrics are summed securely."""
  return {
    'model_aggregator': tff.learning.secure_aggregator(**how),
    'metrics_aggregator': tff.learning.metrics.secure_sum_then_finalize,
  }


def keras_model(*first):
  """Returns a new softmax regression without the softmax, after some layers."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer(input_shape=(NUM_PIXELS,)),
      *first,
      tf.keras.layers.Dense(NUM_CLASSES, kernel_initializer='zeros'),
    ]
  )


def variable_model(keras, spec=SPEC, from_logits=True):
  """Returns a Keras model as TFF's tutorials give one, with its accuracy."""
  return tff.learning.models.from_keras_model(
    keras,
    input_spec=spec,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def model_fn():
  """Returns the softmax regression so."""
  return variable_model(keras_model())


def functional_model(label=tf.int32):
  """Returns it as a `tff.learning.models.FunctionalModel`."""
  spec = collections.OrderedDict(x=SPEC['x'], y=tf.TensorSpec([None, 1], label))
  return tff.learning.models.functional_model_from_keras(
    keras_model(),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=spec,
  )


class OwnModel(tff.learning.models.VariableModel):
  """The same as a class of a user's own, without Keras."""

  non_trainable_variables = local_variables = ()
  input_spec = SPEC

  def __init__(self):
    self._kernel = tf.Variable(tf.zeros([NUM_PIXELS, NUM_CLASSES]))

  @property
  def trainable_variables(self):
    return [self._kernel]

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


def examples(first, size=BATCH_SIZE):
  """Returns digits: `x` as vectors of pixels in [0, 1], and `y`."""
  images, labels = tiny_problems.load_digits()
  part = slice(first, first + size)
  return collections.OrderedDict(
    x=images[part].reshape(size, NUM_PIXELS), y=labels[part, np.newaxis]
  )


def client(first, size=BATCH_SIZE):
  """Returns the data of a client."""
  data = tf.data.Dataset.from_tensor_slices(examples(first, size))
  return data.batch(BATCH_SIZE)


@functools.cache
def clients():
  """Returns those of a round. They differ in size, so that weights matter."""
  return (client(0), client(20), client(40, size=10))


@functools.cache
def process():
  """Returns a process of ours that cases share."""
  return ours()


@functools.cache
def stock_process():
  """Returns the same of TFF."""
  return stock()


@functools.cache
def secure_process():
  """Returns one of ours with secure sums of models and metrics."""
  return ours(**secure())


def train(trained, data=None, rounds=2, state=None):
  """Returns what the last of some rounds gives, by default on `clients()`."""
  state = trained.initialize() if state is None else state
  for _ in range(rounds):
    output = trained.next(state, list(clients() if data is None else data))
    state = output.state
  return output


def train_loss(metrics):
  """Returns the training loss of a round."""
  return float(metrics['client_work']['train']['loss'])


def evaluate(weights):
  """Returns what TFF's own evaluation measures on `clients()`."""
  evaluating = tff.learning.algorithms.build_fed_eval(model_fn)
  state = evaluating.set_model_weights(evaluating.initialize(), weights)
  metrics = evaluating.next(state, list(clients())).metrics
  return metrics['client_work']['eval']['current_round_metrics']


def weights_after(trained, data=None, rounds=2):
  """Returns the trainable weights after some rounds, as `train` takes them."""
  state = train(trained, data, rounds).state
  return list(trained.get_model_weights(state).trainable)


@functools.cache
def mean_weights(unweighted=False):
  """Returns those of two rounds of ours with the plain mean."""
  return weights_after(ours(unweighted=True) if unweighted else process())


@functools.cache
def robust_weights():
  """Returns those of two rounds of ours with the robust aggregator."""
  return weights_after(ours(model_aggregator=tff.learning.robust_aggregator()))


def require_same(trained, expected, data=None, rounds=2, exactly=False):
  """Requires that a process gives the weights of another, or these weights."""
  if not isinstance(expected, list):
    expected = weights_after(expected, data, rounds)
  require = assertions.require_equal if exactly else assertions.require_close
  found = weights_after(trained, data, rounds)
  require(found, expected, 'The weights are others.')


def require_as_of_tff(*same, **how):
  """Does so where the other is of TFF; returns the remark."""
  require_same(*same, **how)
  return 'Weights as of TFF to 1e-6.'


def require_near(trained, expected, most, least=None):
  """Requires weights that differ by less than `most`, and more than `least`."""
  change = assertions.largest_difference(weights_after(trained), expected)
  assert change < most, f'Weights change by {change}.'
  assert least is None or change > least, f'Weights change by {change}.'


def require_secure_sums(built):
  """Requires that no sum of a round is in the clear."""
  tff.test.assert_not_contains_unsecure_aggregation(built.next)


def require_few_calls(build, *alternatives, of_stock=None):
  """Requires builds that call `model_fn` at most three times, and alike.

  Args:
    build: The builder.
    *alternatives: The arguments of each build.
    of_stock: Arguments with which TFF's builder goes into the remark.
  """

  def count(builder, arguments):
    calls = []

    def counted():
      calls.append(None)
      return model_fn()

    builder(counted, **arguments)
    return len(calls)

  calls = {count(build, arguments) for arguments in alternatives}
  assert len(calls) == 1 and max(calls) <= 3, f'Calls of model_fn: {calls}.'
  remark = f'Calls here: {calls.pop()}'
  if of_stock is not None:
    remark += f'; of TFF: {count(stock, of_stock)}'
  return f'{remark}.'
