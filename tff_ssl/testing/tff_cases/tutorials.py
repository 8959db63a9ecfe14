"""TFF's tutorials with a builder of ours: small models, scikit-learn's digits.

What differs from the tutorial is the name of the builder, and the views.
"""

import collections
import functools
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_ssl
from tff_ssl.testing import assertions
from tff_ssl.testing.tff_cases import builders
from tff_ssl.testing.tff_cases.cases import REFUSED, Case, Stop


def image_classification_first_round(build):
  """A softmax regression of `from_keras_model`: weights and metrics."""

  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [
          tf.keras.layers.InputLayer(input_shape=(builders.NUM_PIXELS,)),
          tf.keras.layers.Dense(10, kernel_initializer='zeros'),
          tf.keras.layers.Softmax(),
        ]
      ),
      input_spec=builders.SPEC,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(),
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )

  weights, measured = [], []
  for each in (build, builders.stock):
    process = each(model_fn, server_optimizer_fn=builders.sgd(1.0))
    output = builders.train(process)
    weights.append(list(process.get_model_weights(output.state).trainable))
    measured.append(output.metrics['client_work']['train'])
  assertions.require_close(*weights, "Weights must be those of TFF's builder.")
  ours, stock = measured
  assertions.require_close(
    [ours[key] for key in ('loss', 'accuracy', 'num_examples')],
    [
      stock[key]
      for key in ('loss', 'sparse_categorical_accuracy', 'num_examples')
    ],
    'Metrics must be those of TFF.',
  )
  return 'Both as of TFF to 1e-6.'


def image_classification_ten_rounds(build):
  """Ten rounds with the tutorial's positions of arguments, then evaluation."""
  del build
  process = tff_ssl.build_fed_avg(
    builders.model_fn,
    builders.sgd(0.02),
    builders.sgd(1.0),
    views=tff_ssl.PlainViews(),
  )
  state, losses = process.initialize(), []
  for _ in range(10):
    state, metrics = process.next(state, list(builders.clients()))
    losses.append(float(metrics['client_work']['train']['loss']))
  assertions.require(
    all(np.diff(losses) < 0), f'The loss must decrease: {losses}.'
  )
  evaluating = tff.learning.algorithms.build_fed_eval(builders.model_fn)
  evaluated = evaluating.next(
    evaluating.set_model_weights(
      evaluating.initialize(), process.get_model_weights(state)
    ),
    list(builders.clients()),
  ).metrics['client_work']['eval']['current_round_metrics']
  accuracy = float(evaluated['sparse_categorical_accuracy'])
  assertions.require(accuracy > 0.6, f'The accuracy is {accuracy}.')


def image_classification_own_model(build):
  """A `VariableModel` of one's own, without Keras."""
  build(lambda: builders.OwnModel())


def image_classification_own_class(build):
  """The same, given as the class."""
  build(builders.OwnModel)


def tuned_zeroing_and_clipping(build):
  """Zeroing and clipping with norms by hand are the robust aggregator."""
  estimate = tff.aggregators.PrivateQuantileEstimationProcess.no_noise
  clipping = tff.aggregators.clipping_factory(
    estimate(initial_estimate=1.0, target_quantile=0.8, learning_rate=0.2),
    tff.aggregators.MeanFactory(),
  )
  by_hand = tff.aggregators.zeroing_factory(
    estimate(
      initial_estimate=10.0,
      target_quantile=0.98,
      learning_rate=math.log(10.0),
      multiplier=2.0,
      increment=1.0,
    ),
    clipping,
  )
  assertions.require_close(
    builders.weights_after(build(model_aggregator=by_hand)),
    builders.robust_weights(),
    'Weights must be those of the robust aggregator.',
  )


def tuned_compression(build):
  """A mean that sends eight bits for each weight."""
  change = _change(
    build,
    tff.aggregators.MeanFactory(
      tff.aggregators.EncodedSumFactory.quantize_above_threshold(
        quantization_bits=8, threshold=100
      )
    ),
  )
  assertions.require(0 < change < 1e-2, f'Weights change by {change}.')


def tuned_secure_mean(build):
  """A mean with secure sums whose bound adapts."""
  bound = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
    initial_estimate=50.0,
    target_quantile=0.95,
    learning_rate=1.0,
    multiplier=2.0,
  )
  change = _change(
    build, tff.aggregators.MeanFactory(tff.aggregators.SecureSumFactory(bound))
  )
  assertions.require(change < 1e-3, f'Weights change by {change}.')


def tuned_private_mean(build):
  """A mean with adaptive clipping and noise."""
  aggregator = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
    noise_multiplier=0.1, clients_per_round=100
  )
  change = _change(build, aggregator, unweighted=True)
  assertions.require(0 < change < 0.5, f'Weights change by {change}.')


def _change(build, aggregator, unweighted=False):
  """Returns by how much an aggregator changes the weights of two rounds."""
  return assertions.largest_difference(
    builders.weights_after(
      build(model_aggregator=aggregator, unweighted=unweighted)
    ),
    builders.mean_weights(unweighted),
  )


def differential_privacy(build):
  """The unweighted builder with `dp_aggregator` and server momentum."""
  process = build(
    model_aggregator=tff.learning.dp_aggregator(0.01, clients_per_round=3),
    server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0, momentum=0.9),
    unweighted=True,
  )
  losses, state = [], None
  for _ in range(5):
    state, metrics = builders.train(process, rounds=1, state=state)
    losses.append(float(metrics['client_work']['train']['loss']))
  assertions.require(losses[-1] < losses[0], f'Losses are {losses}.')
  return "Written `client_weighting='uniform'`."


@functools.cache
def _client_data() -> tff.simulation.datasets.ClientData:
  """Returns digits as `ClientData`, one minibatch for each client."""
  raw = {
    f'writer {i}': collections.OrderedDict(
      pixels=np.float32(images), label=labels[:, 0]
    )
    for i in range(4)
    for images, labels in [builders.examples(20 * i).values()]
  }

  def preprocess(dataset):
    return dataset.batch(builders.BATCH_SIZE).map(
      lambda batch: collections.OrderedDict(
        x=tf.reshape(batch['pixels'], [-1, builders.NUM_PIXELS]),
        y=tf.cast(tf.reshape(batch['label'], [-1, 1]), tf.int64),
      )
    )

  return tff.simulation.datasets.TestClientData(raw).preprocess(preprocess)


@functools.cache
def _trainer() -> tff.learning.templates.LearningProcess:
  """Returns the tutorial's trainer, of a functional model, by our builder."""
  return builders.ours(builders.functional_model(tf.int64))


def _data_sets():
  data = _client_data()
  return [
    data.create_tf_dataset_for_client(client_id)
    for client_id in data.client_ids
  ]


def client_data_lists(build):
  """Data sets of `ClientData` in a list; labels are int64 `[n, 1]`."""
  del build
  assertions.require_close(
    builders.weights_after(_trainer(), _data_sets()),
    builders.weights_after(
      builders.stock(builders.functional_model(tf.int64)), _data_sets()
    ),
    "Weights must be those of TFF's builder.",
  )
  return 'Weights as of TFF to 1e-6.'


def client_data_ids(build):
  """TFF composes the process with a reader, so that it takes ids."""
  del build
  data, trainer = _client_data(), _trainer()
  by_ids = tff.simulation.compose_dataset_computation_with_iterative_process(
    data.dataset_computation, trainer
  )
  _require_round_by_ids(by_ids.next)


def client_data_by_hand(build):
  """The same by hand, with a map of the reader over the ids."""
  del build
  data, trainer = _client_data(), _trainer()

  @tff.federated_computation(
    trainer.next.type_signature.parameter[0],
    tff.FederatedType(
      data.dataset_computation.type_signature.parameter, tff.CLIENTS
    ),
  )
  def next_by_ids(state, ids):
    return trainer.next(state, tff.federated_map(data.dataset_computation, ids))

  _require_round_by_ids(next_by_ids)


def _require_round_by_ids(next_by_ids):
  state = _trainer().initialize()
  assertions.require_close(
    next_by_ids(state, _client_data().client_ids).state,
    _trainer().next(state, _data_sets()).state,
    'The state must be that with data sets.',
  )


def client_data_keys(build):
  """Our own composition with a reader takes the same reader."""
  del build
  data, process = _client_data(), _trainer()
  reading = tff_ssl.compose_with_reader(
    process, data.dataset_computation, data.client_ids
  )
  source = tff_ssl.ClientKeySource(num_clients=len(data.client_ids), seed=1)
  keys = source.iterator().select(len(data.client_ids))
  assertions.require_close(
    reading.next(reading.initialize(), keys).state,
    process.next(
      process.initialize(),
      [
        data.create_tf_dataset_for_client(data.client_ids[key[0]])
        for key in keys
      ],
    ).state,
    'The state must be that with data sets.',
  )
  try:
    tff_ssl.compose_with_reader(process, data.dataset_computation)
  except TypeError as error:
    assertions.require('give client_ids' in str(error), str(error))
    return 'Without `client_ids`, it asks for them.'
  raise AssertionError('A reader of ids must ask for the ids.')


def text_generation(build):
  """A model that predicts a character at each place of a text."""

  def model_fn():
    place = tf.TensorSpec([8, 20], tf.int64)
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [
          tf.keras.layers.Input((20,), dtype=tf.int64),
          tf.keras.layers.Embedding(30, 4),
          tf.keras.layers.Dense(30),
        ]
      ),
      input_spec=(place, place),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )

  build(model_fn)


_IMAGES = 'tutorial: federated_learning_for_image_classification'
_TUNING = 'tutorial: tuning_recommended_aggregators'
_DATA = 'tutorial: working_with_client_data'
CASES = (
  Case(image_classification_first_round, _IMAGES),
  Case(image_classification_ten_rounds, _IMAGES),
  Case(
    image_classification_own_model,
    _IMAGES,
    REFUSED,
    Stop(TypeError, 'model makes a OwnModel, a VariableModel without a Keras'),
  ),
  Case(
    image_classification_own_class,
    _IMAGES,
    REFUSED,
    Stop(TypeError, 'model makes a OwnModel, a VariableModel without a Keras'),
  ),
  Case(tuned_zeroing_and_clipping, _TUNING),
  Case(tuned_compression, _TUNING),
  Case(tuned_secure_mean, _TUNING),
  Case(tuned_private_mean, _TUNING),
  Case(
    differential_privacy,
    'tutorial: federated_learning_with_differential_privacy',
  ),
  Case(client_data_lists, _DATA),
  Case(client_data_ids, _DATA),
  Case(client_data_by_hand, _DATA),
  Case(client_data_keys, _DATA),
  Case(
    text_generation,
    'tutorial: federated_learning_for_text_generation',
    REFUSED,
    Stop(TypeError, "element_spec['y'] has the shape (8, 20)"),
    'Processes here label examples.',
  ),
)
