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
from tests.tff_parity import builders
from tests.tff_parity.cases import Group, refused
from tff_ssl.testing import assertions

GROUP = Group('Tutorials')
_IMAGES = 'tutorial: federated_learning_for_image_classification'
_TUNING = 'tutorial: tuning_recommended_aggregators'
_DATA = 'tutorial: working_with_client_data'


@GROUP.case(_IMAGES)
def image_classification_first_round(build):
  """A softmax regression of `from_keras_model`: weights and metrics."""

  def model_fn():
    keras_model = builders.keras_model()
    keras_model.add(tf.keras.layers.Softmax())
    return builders.variable_model(keras_model, from_logits=False)

  weights, measured = [], []
  for each in (build, builders.stock):
    process = each(model_fn, server_optimizer_fn=builders.sgd(1.0))
    output = builders.train(process)
    weights.append(list(process.get_model_weights(output.state).trainable))
    measured.append(output.metrics['client_work']['train'])
  assertions.require_close(*weights, "Weights must be those of TFF's builder.")
  ours, stock = measured
  names = ('loss', 'sparse_categorical_accuracy', 'num_examples')
  assertions.require_close(
    [ours[name] for name in ('loss', 'accuracy', 'num_examples')],
    [stock[name] for name in names],
    'Metrics must be those of TFF.',
  )
  return 'Both as of TFF to 1e-6.'


@GROUP.case(_IMAGES)
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
    losses.append(builders.train_loss(metrics))
  assert all(np.diff(losses) < 0), f'The loss must decrease: {losses}.'
  evaluated = builders.evaluate(process.get_model_weights(state))
  assert evaluated['sparse_categorical_accuracy'] > 0.6, evaluated


_own_model_is_refused = refused(
  TypeError, 'model makes a OwnModel, a VariableModel without a Keras'
)
GROUP.row(
  'image_classification_own_model',
  "A `VariableModel` of one's own, without Keras.",
  _IMAGES,
  lambda build: build(lambda: builders.OwnModel()),
  _own_model_is_refused,
)
GROUP.row(
  'image_classification_own_class',
  'The same, given as the class.',
  _IMAGES,
  lambda build: build(builders.OwnModel),
  _own_model_is_refused,
)
_estimate = tff.aggregators.PrivateQuantileEstimationProcess.no_noise


@GROUP.case(_TUNING)
def tuned_zeroing_and_clipping(build):
  """Zeroing and clipping with norms by hand are the robust aggregator."""
  clipping = tff.aggregators.clipping_factory(
    _estimate(initial_estimate=1.0, target_quantile=0.8, learning_rate=0.2),
    tff.aggregators.MeanFactory(),
  )
  by_hand = tff.aggregators.zeroing_factory(
    _estimate(
      initial_estimate=10.0,
      target_quantile=0.98,
      learning_rate=math.log(10.0),
      multiplier=2.0,
      increment=1.0,
    ),
    clipping,
  )
  built = build(model_aggregator=by_hand)
  builders.require_same(built, builders.robust_weights())


@GROUP.case(_TUNING)
def tuned_compression(build):
  """A mean that sends eight bits for each weight."""
  quantised = tff.aggregators.EncodedSumFactory.quantize_above_threshold(
    quantization_bits=8, threshold=100
  )
  built = build(model_aggregator=tff.aggregators.MeanFactory(quantised))
  builders.require_near(built, builders.mean_weights(), 1e-2, least=0)


@GROUP.case(_TUNING)
def tuned_secure_mean(build):
  """A mean with secure sums whose bound adapts."""
  bound = _estimate(
    initial_estimate=50.0,
    target_quantile=0.95,
    learning_rate=1.0,
    multiplier=2.0,
  )
  secure_sum = tff.aggregators.SecureSumFactory(bound)
  built = build(model_aggregator=tff.aggregators.MeanFactory(secure_sum))
  builders.require_near(built, builders.mean_weights(), 1e-3)


@GROUP.case(_TUNING)
def tuned_private_mean(build):
  """A mean with adaptive clipping and noise."""
  aggregator = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
    noise_multiplier=0.1, clients_per_round=100
  )
  built = build(model_aggregator=aggregator, unweighted=True)
  without_noise = builders.mean_weights(unweighted=True)
  builders.require_near(built, without_noise, 0.5, least=0)


@GROUP.case('tutorial: federated_learning_with_differential_privacy')
def differential_privacy(build):
  """The unweighted builder with `dp_aggregator` and server momentum."""
  process = build(
    model_aggregator=tff.learning.dp_aggregator(0.01, clients_per_round=3),
    server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0, momentum=0.9),
    unweighted=True,
  )
  first = builders.train(process, rounds=1)
  last = builders.train(process, rounds=4, state=first.state)
  losses = [builders.train_loss(each.metrics) for each in (first, last)]
  assert losses[1] < losses[0], f'Losses are {losses}.'
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


def _data_sets(client_ids=None):
  data = _client_data()
  return [
    data.create_tf_dataset_for_client(client_id)
    for client_id in client_ids or data.client_ids
  ]


@GROUP.case(_DATA)
def client_data_lists(build):
  """Data sets of `ClientData` in a list; labels are int64 `[n, 1]`."""
  del build
  stock = builders.stock(builders.functional_model(tf.int64))
  return builders.require_as_of_tff(_trainer(), stock, _data_sets())


def _require_round_by_ids(next_by_ids):
  assertions.require_close(
    next_by_ids(_trainer().initialize(), _client_data().client_ids).state,
    _trainer().next(_trainer().initialize(), _data_sets()).state,
    'The state must be that with data sets.',
  )


@GROUP.case(_DATA)
def client_data_ids(build):
  """TFF composes the process with a reader, so that it takes ids."""
  del build
  by_ids = tff.simulation.compose_dataset_computation_with_iterative_process(
    _client_data().dataset_computation, _trainer()
  )
  _require_round_by_ids(by_ids.next)


@GROUP.case(_DATA)
def client_data_by_hand(build):
  """The same by hand, with a map of the reader over the ids."""
  del build
  reader, trainer = _client_data().dataset_computation, _trainer()

  @tff.federated_computation(
    trainer.next.type_signature.parameter[0],
    tff.FederatedType(reader.type_signature.parameter, tff.CLIENTS),
  )
  def next_by_ids(state, ids):
    return trainer.next(state, tff.federated_map(reader, ids))

  _require_round_by_ids(next_by_ids)


@GROUP.case(_DATA)
def client_data_keys(build):
  """Our own composition with a reader takes the same reader."""
  del build
  data, process = _client_data(), _trainer()
  reading = tff_ssl.compose_with_reader(
    process, data.dataset_computation, data.client_ids
  )
  source = tff_ssl.ClientKeySource(num_clients=len(data.client_ids), seed=1)
  keys = source.iterator().select(len(data.client_ids))
  clients = _data_sets([data.client_ids[key[0]] for key in keys])
  assertions.require_close(
    reading.next(reading.initialize(), keys).state,
    process.next(process.initialize(), clients).state,
    'The state must be that with data sets.',
  )
  try:
    tff_ssl.compose_with_reader(process, data.dataset_computation)
  except TypeError as error:
    assert 'give client_ids' in str(error), error
    return 'Without `client_ids`, it asks for them.'
  raise AssertionError('A reader of ids must ask for the ids.')


@GROUP.case(
  'tutorial: federated_learning_for_text_generation',
  refused(
    TypeError,
    "element_spec['y'] has the shape (8, 20)",
    'Processes here label examples.',
  ),
)
def text_generation(build):
  """A model that predicts a character at each place of a text."""
  place = tf.TensorSpec([8, 20], tf.int64)

  def model_fn():
    keras_model = tf.keras.Sequential(
      [
        tf.keras.layers.Input((20,), dtype=tf.int64),
        tf.keras.layers.Embedding(30, 4),
        tf.keras.layers.Dense(30),
      ]
    )
    return builders.variable_model(keras_model, (place, place))

  build(model_fn)
