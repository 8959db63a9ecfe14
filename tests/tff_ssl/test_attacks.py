"""A tenth of the clients is corrupt from the first round on: what it costs.

FedAvg of a linear classifier of digits. Attacks that last for a few rounds are
rows of `tff_ssl.testing.faults`.
"""

import collections

import costs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from sklearn import datasets as sklearn_datasets

import tff_ssl
from tff_ssl.simulation import client_faults, client_reader

_NUM_CLIENTS, _PER_CLIENT, _ROUNDS = 20, 60, 25
_CORRUPT = {3, 11}
_TRAIN = _NUM_CLIENTS * _PER_CLIENT

pytestmark = [pytest.mark.parts, pytest.mark.usefixtures('tff_context')]


@costs.shared
def _digits():
  images, labels = sklearn_datasets.load_digits(return_X_y=True)
  order = np.random.default_rng(0).permutation(len(labels))
  images = np.float32(images / 16)[order].reshape(-1, 8, 8, 1)
  return images, np.int32(labels[order])


def _linear():
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [layers.Input((8, 8, 1)), layers.Flatten(), layers.Dense(10)]
  )


@costs.shared
def _final_accuracy(kind, aggregator):
  """Test accuracy after all rounds; of sound clients, where kind is None."""
  images, labels = _digits()
  x = images[:_TRAIN].reshape(_NUM_CLIENTS, _PER_CLIENT, 8, 8, 1)
  y = labels[:_TRAIN].reshape(_NUM_CLIENTS, _PER_CLIENT)

  @tff.tensorflow.computation(np.int32)
  def read(index):
    return tf.data.Dataset.from_tensors(
      collections.OrderedDict(x=tf.constant(x)[index], y=tf.constant(y)[index])
    )

  corruption = None
  if kind is not None:
    num_labels = 10 if kind == 'flipped_labels' else None
    corruption = tff_ssl.Corruption(kind, num_labels)
  process = tff_ssl.build_fed_avg(
    tff_ssl.from_keras(_linear),
    data_spec=tff_ssl.ClientDataSpec(
      tff_ssl.image_element_spec((8, 8, 1), dtype=tf.float32),
      in_context=True,
      has_faults=True,
    ),
    views=tff_ssl.PlainViews(),
    client_training=tff_ssl.TrainingPlan(
      optimizer=tff_ssl.build_nesterov_sgd(0.2, 0.9), batch_size=20, epochs=1
    ),
    wiring=tff_ssl.Wiring(
      model_aggregator=tff_ssl.recommended_aggregator(aggregator),
      corruption=corruption,
      seed=1,
    ),
  )
  process = client_reader.compose_with_reader(process, read)
  keys = [
    client_faults.append(np.array([i, 0, i, 0], np.int32), i in _CORRUPT)
    for i in range(_NUM_CLIENTS)
  ]
  state = process.initialize()
  for _ in range(_ROUNDS):
    state, _ = process.next(state, keys)
  kernel, bias = process.get_model_weights(state).trainable
  test = images[_TRAIN:].reshape(-1, 64)
  guesses = np.argmax(test @ kernel + bias, axis=1)
  return float(np.mean(guesses == labels[_TRAIN:]))


# Two standard errors of the test split of 597 digits, at an accuracy of .95.
_NOISE = 2 * (0.95 * 0.05 / 597) ** 0.5


# A2 flipped signs, A3 values that are far too large, A8 flipped labels. A tenth
# of the first and the last only slows down a mean.
@pytest.mark.parametrize(
  'kind, aggregator, most',
  [
    *(('flipped_signs', name, _NOISE) for name in ('robust', 'median', 'mean')),
    *(('exploding', name, 0.03) for name in ('robust', 'median')),
    *(('flipped_labels', name, 0.03) for name in ('median', 'mean')),
  ],
)
def test_a2_a3_a8_a_tenth_costs_little(kind, aggregator, most):
  clean = _final_accuracy(None, 'mean')
  assert clean > 0.9
  assert _final_accuracy(kind, aggregator) > clean - most
